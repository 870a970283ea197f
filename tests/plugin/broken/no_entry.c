/* A shared library that is no plug-in. */
int lockstep_plugin_entr(void);
int lockstep_plugin_entr(void) { return 0; }
