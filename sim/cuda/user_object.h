/* Things of the program's that graphs keep alive: reference-counted, destroyed by a function. */
#pragma once

#include "base/cuda_abi.h"

/* Drops references; the last one calls the destructor. */
void user_object_release(CUuserObject object, unsigned int count);
