#include "integrations/kubernetes/object/yaml_json.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/error.h"
#include "base/macros.h"

struct reading {
	yaml_document_t *document;
	unsigned nodes;
	struct error *err;
};

static json_t *node_json(struct reading *reading, int index, int depth);

static json_t *refuse(const struct reading *reading, const yaml_node_t *node, const char *why)
{
	error_set(reading->err, EXIT_CODE_USAGE, "line %zu: %s",
		  node ? node->start_mark.line + 1 : (size_t)1, why);
	return NULL;
}

/* A scalar without quotes: null, a truth value, a number, or else a text. */
static json_t *plain_json(const char *text)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
	static const char *const truths[] = {"true", "True", "TRUE", "false", "False", "FALSE"};
	char *end;

	for (size_t i = 0; i < ARRAY_SIZE(nulls); i++)
		if (!strcmp(text, nulls[i]))
			return json_null();
	for (size_t i = 0; i < ARRAY_SIZE(truths); i++)
		if (!strcmp(text, truths[i]))
			return json_boolean(i < 3);
	if (strspn(text, "0123456789+-.eE") != strlen(text))
		return json_string(text);
	errno = 0;
	long long whole = strtoll(text, &end, 10);
	if (!*end && !errno)
		return json_integer(whole);
	double real = strtod(text, &end);
	return !*end && isfinite(real) ? json_real(real) : json_string(text);
}

static json_t *scalar_json(const struct reading *reading, const yaml_node_t *node)
{
	const char *text = (const char *)node->data.scalar.value;
	bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	bool tagged = node->tag && strcmp((const char *)node->tag, YAML_STR_TAG) != 0;

	if (strlen(text) != node->data.scalar.length)
		return refuse(reading, node, "a text has a zero byte");
	if (tagged && strcmp((const char *)node->tag, "!") != 0)
		return refuse(reading, node, "tags such as !!binary are not read");
	json_t *value = plain ? plain_json(text) : json_string(text);
	return value ? value : refuse(reading, node, "a text is no UTF-8");
}

static json_t *list_json(struct reading *reading, const yaml_node_t *node, int depth)
{
	json_t *list = json_array();

	for (const yaml_node_item_t *item = node->data.sequence.items.start;
	     item < node->data.sequence.items.top; item++) {
		json_t *value = node_json(reading, *item, depth + 1);

		if (!value) {
			json_decref(list);
			return NULL;
		}
		json_array_append_new(list, value);
	}
	return list;
}

static json_t *object_json(struct reading *reading, const yaml_node_t *node, int depth)
{
	json_t *object = json_object();

	for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
	     pair < node->data.mapping.pairs.top; pair++) {
		const yaml_node_t *key = yaml_document_get_node(reading->document, pair->key);
		const char *name = key && key->type == YAML_SCALAR_NODE
					   ? (const char *)key->data.scalar.value
					   : NULL;
		const char *why = !name                           ? "a key is no text"
				  : !strcmp(name, "<<")           ? "'<<' is not read"
				  : json_object_get(object, name) ? "a key is there twice"
								  : NULL;
		json_t *value = why ? refuse(reading, key, why)
				    : node_json(reading, pair->value, depth + 1);

		if (value && json_object_set_new(object, name, value) < 0)
			value = refuse(reading, key, "a key is no UTF-8");
		if (!value) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

static json_t *node_json(struct reading *reading, int index, int depth)
{
	const yaml_node_t *node = yaml_document_get_node(reading->document, index);

	/* Aliases make a node appear again, even in itself. */
	if (!node || depth > YAML_DEPTH_MAX)
		return refuse(reading, node, "it is nested too deeply");
	if (++reading->nodes > YAML_NODES_MAX)
		return refuse(reading, node, "it is too large");
	return node->type == YAML_SCALAR_NODE     ? scalar_json(reading, node)
	       : node->type == YAML_SEQUENCE_NODE ? list_json(reading, node, depth)
						  : object_json(reading, node, depth);
}

static int parser_error(const yaml_parser_t *parser, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "line %zu: %.100s", parser->problem_mark.line + 1,
		  parser->problem ? parser->problem : "it cannot be read");
	return -EXIT_CODE_USAGE;
}

static int document_json(yaml_parser_t *parser, json_t **ret, struct error *err)
{
	yaml_document_t document, next;
	struct reading reading = {.document = &document, .err = err};

	if (!yaml_parser_load(parser, &document))
		return parser_error(parser, err);
	json_t *root = yaml_document_get_root_node(&document)
			       ? node_json(&reading, 1, 0)
			       : refuse(&reading, NULL, "it is empty");
	yaml_document_delete(&document);
	if (!root)
		return -EXIT_CODE_USAGE;
	if (!yaml_parser_load(parser, &next)) {
		json_decref(root);
		return parser_error(parser, err);
	}
	bool more = yaml_document_get_root_node(&next) != NULL;
	yaml_document_delete(&next);
	if (more) {
		json_decref(root);
		return error_set(err, EXIT_CODE_USAGE, "it has more than one document");
	}
	*ret = root;
	return 0;
}

int yaml_json_load(const char *text, size_t size, json_t **ret, struct error *err)
{
	yaml_parser_t parser;

	*ret = NULL;
	if (size > YAML_SIZE_MAX)
		return error_set(err, EXIT_CODE_USAGE, "it has more than %u KiB",
				 YAML_SIZE_MAX >> 10);
	if (!yaml_parser_initialize(&parser))
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
	int rc = document_json(&parser, ret, err);
	yaml_parser_delete(&parser);
	return rc;
}
