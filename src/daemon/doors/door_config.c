#include "daemon/doors/door_config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* 0: it is none. */
static in_port_t port_parse(const char *text)
{
	unsigned long port = 0;

	if (strlen(text) > 5 || !*text || strspn(text, "0123456789") != strlen(text))
		return 0;
	port = strtoul(text, NULL, 10);
	return port <= 65535 ? htons((in_port_t)port) : 0;
}

int door_address(const char *listen, struct sockaddr_storage *ret, socklen_t *ret_size)
{
	char host[64];
	const char *colon = strrchr(listen, ':');
	bool six = *listen == '[';
	size_t size = colon ? (size_t)(colon - listen) : 0;
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	if (six && (size < 3 || listen[size - 1] != ']'))
		return -EINVAL;
	if (!size || size >= sizeof(host))
		return -EINVAL;
	snprintf(host, sizeof(host), "%.*s", (int)(six ? size - 2 : size),
		 six ? listen + 1 : listen);
	in.sin_port = in6.sin6_port = port_parse(colon + 1);
	if (!in.sin_port || inet_pton(six ? AF_INET6 : AF_INET, host,
				      six ? (void *)&in6.sin6_addr : (void *)&in.sin_addr) != 1)
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	*ret_size = six ? sizeof(in6) : sizeof(in);
	memcpy(ret, six ? (void *)&in6 : (void *)&in, *ret_size);
	return 0;
}

bool door_address_is_loopback(const struct sockaddr_storage *address)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;

	if (address->ss_family == AF_INET)
		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
	       (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) && in6->sin6_addr.s6_addr[12] == 127);
}

bool door_config_is_outside(const struct door_config *config)
{
	struct sockaddr_storage address;
	socklen_t size;

	return config->listen[0] && door_address(config->listen, &address, &size) == 0 &&
	       !door_address_is_loopback(&address);
}

bool door_listen_valid(const char *text)
{
	struct sockaddr_storage address;
	socklen_t size;

	return door_address(text, &address, &size) == 0;
}

bool door_path_valid(const char *text)
{
	return *text == '/';
}

int door_config_agrees(const struct door_config *config, const char *key, const char *tls,
		       struct error *err)
{
	if (!config->listen[0] && (config->cert[0] || config->token_file[0]))
		return error_set(err, EXIT_CODE_USAGE, "%s.listen is missing: it takes %s", key,
				 DOOR_LISTEN_TAKES);
	if (door_config_is_outside(config) && !config->cert[0])
		return error_set(err, EXIT_CODE_USAGE,
				 "%s.listen: other machines reach %s, which takes \"tls\": %s; "
				 "without tls it takes \"127.0.0.1%s\" or \"[::1]%s\"",
				 key, config->listen, tls, strrchr(config->listen, ':'),
				 strrchr(config->listen, ':'));
	return 0;
}
