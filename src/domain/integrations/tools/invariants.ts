import type { Instant } from "../../../kit/clock.ts";
import { integrityRowsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

/** A tool without its agent cannot be called, and keeps its name from others. */
export const agentToolsCheck = (store: Pick<Store, "all">): IntegrityCheck => ({
  name: "agents.tools",
  about: "Tools whose agent is not registered.",
  run: async (environmentId) =>
    violationsOf(
      await store.all<{
        id: string;
        at: Instant;
      }>(sql`SELECT t.qualified_name AS id, 0 AS at, t.agent_name AS agent FROM agent_tools t
        LEFT JOIN agents a ON a.environment_id = t.environment_id AND a.name = t.agent_name
        WHERE t.environment_id = ${environmentId} AND a.name IS NULL LIMIT ${integrityRowsMax}`),
    ),
});
