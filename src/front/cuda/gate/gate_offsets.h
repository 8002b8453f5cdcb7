/* The offsets of the fields that assembly reads; cuda/gate/gate.h compares them with the
 * structures. Nothing but numbers. */
#pragma once

/* In struct gate_local. */
#define GATE_LOCAL_RECORD 0
#define GATE_LOCAL_OPEN_WORD 8
#define GATE_LOCAL_STREAM 16
#define GATE_LOCAL_SUBMITTED 24
/* In CUlaunchConfig. */
#define LAUNCH_CONFIG_STREAM 32
