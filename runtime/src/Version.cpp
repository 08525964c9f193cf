#include "attn_rt/Status.h"
