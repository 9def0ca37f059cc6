import { orgOutlivedBy } from "../../src/domain/access/tenancy/deletion-rows.ts";
import type { Operation } from "../../src/kit/operation.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { minters } from "./races-calls.ts";
import { revokers } from "./races-revokers.ts";

/** Operations that change who may do what are in the matrix, or here, and why. */
export const apart: Readonly<Record<string, string>> = {
  "environments.update": "a name and a color: nobody's right",
  "projects.update": "a name and a description: nobody's right",
  "orgs.update": "a name and preferences: nobody's right",
  "orgs.create": "an empty org: nobody may do anything in it yet",
  "platform.tenants.create": "an empty org: nobody may do anything in it yet",
  "tenants.provision": "every attempt begins with it; nobody can take away what is not committed yet",
  "auth.loginByLink": "the write of auth.login, once in an installation",
  "platform.bootstrap": "once in an installation: every world begins with it",
  "policies.delete": "gives rights back: policies only deny",
  "policies.unassign": "gives rights back: policies only deny",
  "auth.endOtherSessions": "the write of auth.endSession, for all sessions but the one that asks",
  "platform.sessions.end": "the write of auth.endSession, in the platform",
  "policies.rollback": "the write of policies.update",
  "policyTemplates.install": "the write of policies.create",
  "platform.policies.create": "the write of policies.create",
  "platform.policies.delete": "gives rights back: policies only deny",
  "platform.policies.unassign": "gives rights back: policies only deny",
  "platform.roles.create": "the write of roles.create, in an org that nobody deletes",
  "platform.issuers.create": "gives nobody a right until somebody signs in by it",
  "platform.issuers.update": "likewise, and every sign-in reads it under the lock of its org",
  "platform.issuers.delete": "takes nothing away from who is in",
  "platform.signIn.update": "takes nothing away from who is in",
  "auth.oidc.link": "writes nothing: its callback does",
  "auth.oidc.callback":
    "needs a provider: operations/oidc-hostile races it with itself and with the deletion of its user",
  "auth.oidc.device": "writes nothing",
  "users.unlink": "needs an identity; sessions end by the write of users.endSessions",
  "platform.users.unlink": "needs an identity; sessions end by the write of users.endSessions",
  "auth.oidc.deviceToken": "the write of auth.oidc.callback",
  "auth.oidc.logout": "the write of auth.endSession, by a provider",
  "cluster.rotateToken":
    "sessions of before are good for a day on purpose; whose rotation it may be is no race",
};

const rooms =
  /^(auth|users|keys|roles|policies|policyTemplates|platform|environments|projects|orgs|tenants|cluster)\./;

/** Operations of access that are nowhere, and names in the lists that no operation has. */
export function uncovered(registry: readonly Operation[]): string[] {
  const known = new Set(registry.map(({ name }) => name));
  const raced = new Set([...revokers, ...minters].map(({ operation }) => operation));
  const missing = registry
    .filter(
      (one) => rooms.test(one.name) && !one.reads && !raced.has(one.name) && !Object.hasOwn(apart, one.name),
    )
    .map((one) => `${one.name} is neither raced nor set apart`);
  const idle = Object.keys(apart)
    .filter((name) => !known.has(name))
    .map((name) => `${name} is set apart, and is no operation`);
  const both = Object.keys(apart)
    .filter((name) => raced.has(name))
    .map((name) => `${name} is raced and set apart`);
  return [...missing, ...idle, ...both];
}

const tablesOf = (engine: Store["engine"], column: string) =>
  engine === "postgres"
    ? sql`SELECT table_name AS name FROM information_schema.columns
        WHERE table_schema = current_schema() AND column_name = ${column} ORDER BY 1`
    : sql`SELECT m.name AS name FROM sqlite_master m, pragma_table_info(m.name) c
        WHERE m.type = 'table' AND c.name = ${column} ORDER BY 1`;

/** What a deletion of an environment takes with it at its commit; the rest goes by and by, as long as there is a tombstone. */
const atCommit = new Set(["api_keys", "heads", "topic_heads"]);

/** Rows that live under a parent that is gone. */
export async function orphans(store: Store): Promise<string[]> {
  const found: string[] = [];
  const count = async (table: string, parent: string, where: ReturnType<typeof sql>) => {
    const row = await store.one<{ count: number }>(
      sql`SELECT count(*) AS count FROM ${sql.raw(table)} t WHERE ${where}`,
    );
    const number = Number(row?.count ?? 0);
    if (number > 0) found.push(`${number} rows of ${table} live under ${parent} that is gone`);
  };
  const tablesWith = (column: string) => store.all<{ name: string }>(tablesOf(store.engine, column));
  for (const { name } of await tablesWith("org_id"))
    if (!Object.hasOwn(orgOutlivedBy, name))
      await count(name, "an org", sql`NOT EXISTS (SELECT 1 FROM orgs o WHERE o.id = t.org_id)`);
  for (const { name } of await tablesWith("environment_id")) {
    if (Object.hasOwn(orgOutlivedBy, name)) continue;
    const isMissing = sql`t.environment_id IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM environments e WHERE e.id = t.environment_id)`;
    const isLeft = sql`AND NOT EXISTS (SELECT 1 FROM deleted_environments d
      WHERE d.id = t.environment_id AND d.purged_at IS NULL)`;
    await count(name, "an environment", atCommit.has(name) ? isMissing : sql`${isMissing} ${isLeft}`);
  }
  await count(
    "environments",
    "a project",
    sql`t.project_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM projects p WHERE p.id = t.project_id)`,
  );
  const sessions = (await tablesWith("subject_id")).some(({ name }) => name === "sessions");
  if (sessions)
    await count(
      "sessions",
      "a principal",
      sql`NOT EXISTS (SELECT 1 FROM users u WHERE u.id = t.subject_id)
        AND NOT EXISTS (SELECT 1 FROM platform_users p WHERE p.id = t.subject_id)
        AND NOT EXISTS (SELECT 1 FROM api_keys k WHERE k.id = t.subject_id)`,
    );
  return found;
}
