/* Doubly linked lists through a member of the structs that are listed. A list owns nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *previous;
};

#define list_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))
#define list_for_each(node, head) \
	for (struct list *node = (head)->next; node != (head); node = node->next)
/* The body may remove `node`. */
#define list_for_each_safe(node, head)                                                    \
	for (struct list *node = (head)->next, *node##_next = node->next; node != (head); \
	     node = node##_next, node##_next = node->next)

static inline void list_init(struct list *head)
{
	head->next = head->previous = head;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

static inline bool list_single(const struct list *head)
{
	return head->next != head && head->next == head->previous;
}

static inline void list_append(struct list *head, struct list *node)
{
	node->previous = head->previous;
	node->next = head;
	head->previous->next = node;
	head->previous = node;
}

/* Right behind `at`, which is listed. */
static inline void list_insert(struct list *at, struct list *node)
{
	node->previous = at;
	node->next = at->next;
	at->next->previous = node;
	at->next = node;
}

/* Leaves `node` as an empty list, so that removing it again does nothing. */
static inline void list_remove(struct list *node)
{
	node->previous->next = node->next;
	node->next->previous = node->previous;
	list_init(node);
}
