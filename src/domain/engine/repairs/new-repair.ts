import { type Caller, starterOf } from "../../../kit/caller.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Session } from "../../../store/store.ts";
import { repairsOpenMax } from "./limits.ts";
import { countOpen, insertRepair, type RepairRow } from "./rows.ts";

export interface NewRepair {
  environmentId: string;
  caller: Caller;
  action: string;
  reason: string | undefined;
  request: object;
}

export const newRepair = (
  { environmentId, caller, action, reason, request }: NewRepair,
  { id, now }: { id: string; now: Instant },
): RepairRow => ({
  ...{ environment_id: environmentId, id, action, status: "running", phase: "select" },
  ...{ reason: reason ?? "", request: JSON.stringify(request), note: "" },
  ...{ starter: JSON.stringify(starterOf(caller)), started_by: caller.id },
  ...{ cursor_at: null, cursor_id: null, selected: 0, counts: null },
  ...{ holder: null, fence: 0, lease_until: 0, due_at: now },
  ...{ created_at: now, updated_at: now, ended_at: null },
});

export async function insertWhereRoom(session: Session, row: RepairRow): Promise<void> {
  if ((await countOpen(session, row.environment_id)) >= repairsOpenMax)
    throw new Fault("resource_exhausted", `at most ${repairsOpenMax} repairs of an environment may be open`);
  await insertRepair(session, row);
}
