import type { Metrics } from "../../../kit/metrics.ts";
import type { QueriesDeps } from "./service.ts";

export function meterQueries(metrics: Metrics): QueriesDeps["onQuery"] {
  const queries = metrics.counter({
    name: "svc_queries_total",
    help: "SQL queries of callers, by how they ended.",
    labels: ["outcome"],
  });
  return (outcome) => queries(outcome).add();
}
