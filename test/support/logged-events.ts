import type { LoggedEvent } from "../../src/domain/log/core/service.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";

/** An event as feeds read it. */
export const loggedEvent = (given: Pick<LoggedEvent, "id" | "position" | "name" | "data">): LoggedEvent => ({
  ...given,
  version: 1,
  metadata: null,
  source: "api",
  at: given.position,
  idempotency_key: null,
  entity_id: null,
  entity_type: null,
  entity_version: null,
  run_id: null,
  redacted_at: null,
});

/** Commits events in order, and the environment's head with them, as the flush of an emit does. */
export const commitEvents = (store: Store, environmentId: string, events: readonly LoggedEvent[]) =>
  store.write(async (session) => {
    for (const { position, id, name, data, at } of events)
      await session.run(sql`INSERT INTO events (environment_id, position, id, name, version, data, source, at)
        VALUES (${environmentId}, ${position}, ${id}, ${name}, 1, ${data}, 'api', ${at})`);
    await session.run(
      sql`UPDATE heads SET position = ${events.at(-1)!.position} WHERE environment_id = ${environmentId}`,
    );
  });
