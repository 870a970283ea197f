#!/bin/sh
# one_object.sh LD OBJCOPY AR ARCHIVE: makes of the archive's objects one whose hidden names are its own, so that a program that links the
# static library sees the public ones alone and may use our names for its own.
set -eu
ld=$1 objcopy=$2 ar=$3 archive=$4
object=${archive%.a}.o
"$ld" -r --whole-archive "$archive" -o "$object"
"$objcopy" --localize-hidden "$object"
rm -f "$archive"
"$ar" rcs "$archive" "$object"
rm -f "$object"
