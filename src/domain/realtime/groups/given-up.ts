import { Fault } from "../../../kit/fault.ts";
import { sql } from "../../../kit/sql.ts";
import { storedJson } from "../../../kit/stored-json.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { Outbox, OutboxEntry, PermitName } from "../../record/outbox/service.ts";
import type { GroupChange } from "./ack.ts";
import { type GroupRow, holdGroup } from "./rows.ts";

export interface GivenUpDeps {
  bury: Outbox["bury"];
}

export interface GivenUpDelivery {
  position: number;
  eventId: string;
  attempt: number;
  /** How often its member disappeared with it. */
  lost_count: number;
}

/** What the dead letter of a delivery says of it, beside its event. */
interface DeliveryPlace {
  group_id: string;
  namespace: string;
  group: string;
  position: number;
}

/** What is logged at these positions, without payloads; what has expired is missing. */
const namesAt = (
  session: Session,
  { environment_id, log }: Pick<GroupRow, "environment_id" | "log">,
  positions: readonly number[],
): Promise<{ position: number; name: string; entity_type: string | null; entity_id: string | null }[]> =>
  session.all(
    sql`SELECT position, ${sql.raw(
      log === "events"
        ? "name, entity_type, entity_id FROM events"
        : "topic AS name, CAST(NULL AS TEXT) AS entity_type, CAST(NULL AS TEXT) AS entity_id FROM topic_messages",
    )} WHERE environment_id = ${environment_id} AND position IN ${sql.list(positions)}`,
  );

/** Makes dead letters of deliveries that their group gives up; call the answer after the commit. */
export async function listGivenUp(
  { bury }: GivenUpDeps,
  session: Session,
  group: GroupRow,
  givenUp: readonly GivenUpDelivery[],
): Promise<() => void> {
  const { environment_id: environmentId, id: group_id, namespace, name, pattern } = group;
  const logged = await namesAt(
    session,
    group,
    givenUp.map((one) => one.position),
  );
  const byPosition = new Map(logged.map((one) => [one.position, one]));
  const [kind] = pattern.split(":", 1);
  return bury(
    session,
    givenUp.map(({ position, eventId, attempt, lost_count }) => {
      const event = byPosition.get(position);
      const words =
        event && kind === "entity" ? [event.entity_type, event.entity_id, event.name] : [event?.name];
      const place: DeliveryPlace = { group_id, namespace, group: name, position };
      const lost = lost_count > 0 ? `, and its member disappeared with ${lost_count} of them` : "";
      return {
        attempts: attempt,
        error: new Error(`consumer group ${name} did not acknowledge ${attempt} deliveries of it${lost}`),
        draft: {
          ...{ environmentId, eventId, kind: "group", payload: "null", metadata: { ...place } },
          ...(event?.entity_id != null && { entityId: event.entity_id }),
          topic: event ? `${kind}:${words.join(".")}` : pattern,
        },
      };
    }),
  );
}

/** The delivery of a dead letter is due at once, with all its attempts. */
export async function redeliver(
  { store, clock }: Basics<"store" | "clock">,
  { environment_id, event_id, attempts, metadata }: OutboxEntry,
  permit: PermitName,
): Promise<GroupChange> {
  const place = storedJson<DeliveryPlace>(metadata);
  if (!place) throw new Fault("failed_precondition", "what is stored of the delivery cannot be read");
  const { group_id, namespace, group: name, position } = place;
  await permit(`group:${name}`);
  const now = clock.now();
  await store.write(async (session) => {
    const group = await holdGroup(session, { environment_id, namespace, name });
    if (group?.id !== group_id)
      throw new Fault("failed_precondition", `consumer group ${name} of the delivery was deleted`);
    if ((await namesAt(session, group, [position])).length === 0)
      throw new Fault("failed_precondition", `event ${event_id.slice(0, 100)} has expired in its log`);
    await session.run(sql`INSERT INTO group_deliveries (environment_id, group_id, position, event_id, attempt,
        spent_count, lost_count, member_id, consumer_id, due_at)
      VALUES (${environment_id}, ${group_id}, ${sql.bigint(position)}, ${event_id}, ${sql.bigint(attempts)}, 0, 0,
        NULL, '', ${sql.bigint(now)})
      ON CONFLICT DO NOTHING`);
  });
  return { environmentId: environment_id, groupId: group_id, dueAt: now };
}
