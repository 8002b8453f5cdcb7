/* A simulated host stands, whatever clients send to it: its clock goes on, and with the last client
 * gone nothing is held. Input: messages one after the other, each {u8 client, u8 passing time, u16
 * size, bytes}. Client c has role c % 4, where 0 has not said hello. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "host/command.h"
#include "host/host.h"

#define CLIENTS 8
#define TIME_UNIT_NS 100000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct host host;
static struct exchange exchange;
static struct process *clients[CLIENTS];

static bool send_bytes(struct process *p, const void *bytes, size_t size)
{
	exchange.process = p;
	exchange.request = bytes;
	exchange.size = size;
	exchange.fd = -1;
	bool alive = command_run(&host, &exchange);
	if (exchange.reply_fd_owned)
		close(exchange.reply_fd[0]);
	exchange.reply_fd_owned = false;
	return alive;
}

/* A reset of a GPU ended it. */
static void process_ended(void *context, struct process *p)
{
	for (size_t i = 0; i < CLIENTS; i++)
		if (clients[i] == p)
			clients[i] = NULL;
	host_process_remove(p);
}

static struct process *client_get(size_t i)
{
	struct wire_hello hello = {.head.type = WIRE_HELLO,
				   .magic = WIRE_MAGIC,
				   .version = WIRE_VERSION,
				   .role = i % 4};

	if (!clients[i]) {
		clients[i] = host_process_add(&host, getpid(), getuid());
		if (hello.role && !send_bytes(clients[i], &hello, sizeof(hello)))
			abort();
	}
	return clients[i];
}

static void client_drop(size_t i)
{
	if (clients[i])
		host_process_remove(clients[i]);
	clients[i] = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct spec spec;
	static uint64_t message[4096];
	uint64_t now = 0;

	if (spec_parse("t4-16gb,a100-40gb+mig", &spec, NULL) < 0 ||
	    host_init(&host, &spec, spec_driver_find("550", NULL), 0) < 0)
		abort();
	host.process_end = process_ended;
	while (size >= 4) {
		size_t i = data[0] % CLIENTS, length = data[2] | (size_t)data[3] << 8;

		now += data[1] * TIME_UNIT_NS;
		data += 4;
		size -= 4;
		length = MIN(MIN(length, size), sizeof(message));
		memcpy(message, data, length);
		data += length;
		size -= length;
		host_tick(&host, now);
		if (!send_bytes(client_get(i), message, length))
			client_drop(i);
		host_tick(&host, now);
		host_publish(&host);
		if (host_wake(&host) <= host.now)
			abort();
	}
	for (size_t i = 0; i < CLIENTS; i++)
		client_drop(i);
	for (uint32_t i = 0; i < host.gpu_count; i++) {
		if (host_gpu_used(&host, i))
			abort();
	}
	host_finish(&host);
	return 0;
}
