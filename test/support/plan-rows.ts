/** A node of what PostgreSQL's `EXPLAIN (ANALYZE, FORMAT JSON)` answers. */
export interface PlanNode {
  "Node Type": string;
  "Actual Rows": number;
  "Actual Loops": number;
  "Rows Removed by Filter"?: number;
  Plans?: PlanNode[];
}

/** Rows that the leaves of a plan have looked at. */
export function rowsRead(node: PlanNode): number {
  if (node.Plans?.length) return node.Plans.reduce((sum, one) => sum + rowsRead(one), 0);
  return (node["Actual Rows"] + (node["Rows Removed by Filter"] ?? 0)) * node["Actual Loops"];
}
