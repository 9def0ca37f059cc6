import { overviewOperations } from "../domain/cluster/overview/operations.ts";
import { openOverview } from "../domain/cluster/overview/service.ts";
import type { Flow } from "../domain/record/flow/service.ts";
import type { ClusterPart } from "./cluster.ts";
import type { EnginePart } from "./engine.ts";
import type { Host, Part } from "./part.ts";
import type { RecordPart } from "./record.ts";
import type { AppRights } from "./rights.ts";

export interface OverviewNeeds {
  flow: Pick<Flow, "rates">;
  record: Pick<RecordPart, "lastLook">;
  cluster: Pick<ClusterPart, "health">;
  engine: Pick<EnginePart, "quotas">;
  rights: Pick<AppRights, "seesDetails">;
}

/** How an environment and the cluster are, in one answer. */
export function openOverviewPart(host: Host, { flow, record, cluster, engine, rights }: OverviewNeeds): Part {
  const { store, clock } = host;
  const overview = openOverview({
    ...{ store, clock, startedAt: clock.now() },
    ...{ ratesOf: flow.rates, lastLook: record.lastLook, health: cluster.health },
    quotasOf: engine.quotas.usesOf,
  });
  return { operations: overviewOperations(overview, rights.seesDetails) };
}
