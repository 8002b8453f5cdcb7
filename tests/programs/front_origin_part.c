/* Found by its owner's RPATH only. */
extern int front_origin_part(void);

int front_origin_part(void)
{
	return 1;
}
