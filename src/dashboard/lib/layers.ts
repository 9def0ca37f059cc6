import { Graph, layout } from "@dagrejs/dagre";

export interface BoxSize {
  width: number;
  height: number;
}

export interface FlowLine {
  from: string;
  to: string;
}

export interface LayoutQuestion {
  ids: readonly string[];
  lines: readonly FlowLine[];
  box: BoxSize;
}

/** Pixels; a place is the upper left corner of its box. */
export interface LaidOut extends BoxSize {
  places: Record<string, { x: number; y: number }>;
}

const layerGap = 100;
const rowGap = 14;

/** A drawing of a flow from left to right: each line leads to a later layer, unless it closes a circle. */
export function layOut({ ids, lines, box }: LayoutQuestion): LaidOut {
  const graph = new Graph();
  graph.setGraph({ rankdir: "LR", ranksep: layerGap, nodesep: rowGap });
  graph.setDefaultEdgeLabel(() => ({}));
  // Ids are a tenant's: one of them could be a word that objects have a meaning for.
  const keys = new Map(ids.map((id, at) => [id, `n${at}`]));
  for (const key of keys.values()) graph.setNode(key, { ...box });
  for (const { from, to } of lines) graph.setEdge(keys.get(from)!, keys.get(to)!);
  layout(graph);
  const corners = [...keys].map(([id, key]) => {
    const { x, y } = graph.node(key) as { x: number; y: number };
    return [id, { x: x - box.width / 2, y: y - box.height / 2 }] as const;
  });
  const { width = 0, height = 0 } = graph.graph() as Partial<BoxSize>;
  return { places: Object.fromEntries(corners), width, height };
}
