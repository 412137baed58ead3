/* Shared by the files of the graph. */
#ifndef SL_GRAPH_INTERNAL_H
#define SL_GRAPH_INTERNAL_H

#include "graph/graph.h"

/* New values and nodes: zeroed, appended; returns the index of the value, or the node. Pointers into graph->values and
 * graph->nodes do not survive these calls. */
sl_status sl_graph_add_value(sl_graph *graph, const char *name, sl_value_class class, const sl_type *type,
                             sl_value *out);
sl_status sl_graph_add_node(sl_graph *graph, const sl_node *node);
/* Whether a pattern of the graph's names the parameter. */
bool sl_graph_freezes(const sl_graph *graph, const char *name);
/* Frozen parameters into groups of their own; every pattern must name one. */
sl_status sl_graph_split_frozen(sl_graph *graph);
/* Fuses forward nodes into others (fuse.c). */
sl_status sl_graph_fuse(sl_graph *graph);
/* Without the marked nodes; the blocks' ranges follow. */
void sl_graph_remove_nodes(sl_graph *graph, const uint8_t *removed);
/* Offsets of the parameters in their groups. */
sl_status sl_graph_layout(sl_graph *graph);
/* Which parameters are matrices between activations. */
void sl_graph_find_matrices(sl_graph *graph);
/* Turns outputs that are parts of inputs into views and removes their nodes (views.c). */
sl_status sl_graph_make_views(sl_graph *graph);
/* Backward nodes of the whole graph; blocks get their backward ranges. */
sl_status sl_graph_differentiate(sl_graph *graph);

#endif
