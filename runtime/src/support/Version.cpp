#include "attn_rt/Version.h"

const char *attn::rt::version() { return ATTN_VERSION; }
