import { type Action, actions, type BuiltInRole, isAction } from "../../src/access/actions.ts";
import type { Operation } from "../../src/kit/operation.ts";
import { everyWay, go, isLetIn, type Way } from "./every-route.ts";
import { startTestServer, type TestServer } from "./server.ts";

/** Who asks, in the order of the columns; the letter stands where they are let in. */
export const askers = [
  { name: "admin", letter: "a", group: "tenant" },
  { name: "developer", letter: "d", group: "tenant" },
  { name: "viewer", letter: "v", group: "tenant" },
  { name: "platform_admin", letter: "a", group: "platform" },
  { name: "platform_operator", letter: "o", group: "platform" },
  { name: "platform_viewer", letter: "v", group: "platform" },
  { name: "platform_admin", letter: "a", group: "as tenant" },
  { name: "platform_operator", letter: "o", group: "as tenant" },
  { name: "platform_viewer", letter: "v", group: "as tenant" },
  { name: "admin", letter: "e", group: "elsewhere" },
  { name: "nobody", letter: "n", group: "nobody" },
] as const;

export type Asker = (typeof askers)[number];

const holds = (role: string, action: Action): boolean =>
  (actions[action] as readonly BuiltInRole[]).includes(role as BuiltInRole);

/** spec.md 'Impersonation actions'. */
function impersonationNeeds({ operation, method }: Way): Action {
  const { action } = operation;
  const reads =
    action === "authenticated" || action === null ? method === "GET" : /:(read|list|subscribe)$/.test(action);
  return reads ? "platform:impersonate:read" : "platform:impersonate";
}

/** By an operation's name, or the group of it: where a handler asks for more than its action says, when asked as here: with no input, about nothing that is there. */
const handlersAsk: Record<string, { why: string; enters: (asker: Asker) => boolean }> = {
  "capacity.": { why: "of platform credentials", enters: ({ group }) => group !== "tenant" },
  "tenants.list": { why: "of platform credentials", enters: ({ group }) => group === "as tenant" },
  "auth.validate": { why: "answers 401 about whatever is no session", enters: () => false },
  "auth.desktopSession": { why: "of a tenant's key", enters: ({ group }) => group === "tenant" },
  "keys.list": { why: "the platform's with platform=true", enters: ({ group }) => group !== "platform" },
  "users.get": {
    why: "others than oneself with users:read",
    enters: ({ group, name }) => group !== "tenant" || name === "admin",
  },
};

const askedBy = ({ operation: { name } }: Way) =>
  handlersAsk[name] ?? handlersAsk[name.slice(0, name.indexOf(".") + 1)];

/** Whether the specification lets this asker in; written from it, not from the gate. */
export function mayEnter(way: Way, asker: Asker): boolean {
  return passes(way, asker) && (askedBy(way)?.enters(asker) ?? true);
}

function passes(way: Way, { name: role, group }: Asker): boolean {
  const { action, platformAction } = way.operation;
  if (action === null) return true;
  switch (group) {
    case "nobody":
    case "elsewhere":
      return false;
    case "tenant":
      // No tenant's credential is the platform's, whatever its roles grant.
      if (action.startsWith("platform:")) return false;
      return action === "authenticated" || (isAction(action) && holds(role, action));
    case "as tenant":
      // `X-Svc-Org` means nothing to the platform's own routes.
      if (!way.path.startsWith("/api/v1/platform/")) return holds(role, impersonationNeeds(way));
      break;
    case "platform":
      break;
  }
  const needed = platformAction ?? (action.startsWith("platform:") ? action : "");
  return isAction(needed) && holds(role, needed);
}

const groups = [...new Set(askers.map(({ group }) => group))];

/** One way in a line: who is let in, a letter each. */
export function matrixText(registry: readonly Operation[], enters = mayEnter): string {
  const lines = everyWay(registry).map((way) => {
    const marks = groups.map((group) =>
      askers
        .filter((asker) => asker.group === group)
        .map((asker) => (enters(way, asker) ? asker.letter : "-"))
        .join(""),
    );
    const { name, action } = way.operation;
    const asks = askedBy(way);
    return [
      marks.join(" "),
      name,
      action ?? "public",
      `${way.method} ${way.path}`,
      ...(asks ? [`(${asks.why})`] : []),
    ].join("  ");
  });
  return `${heading}${lines.join("\n")}\n`;
}

const heading = `# Who is let in where; - is refused with 401 or 403. Columns, left to right:
# adv  admin, developer, viewer, with a key of the environment
# aov  platform admin, operator, viewer, for themselves
# aov  the same in a tenant's org, by X-Svc-Org
# e    admin, with another environment selected than the key's
# n    nobody: no credential
`;

/** The same text, from what a server does. */
export async function askEverywhere(server: TestServer): Promise<string> {
  const { keys, tenancy } = server.running.domain;
  const { registry } = server.running;
  const other = await tenancy.createEnvironment({ orgId: "org_default", name: "elsewhere" });
  const headersOf = async ({ name, group }: Asker): Promise<Record<string, string>> => {
    if (group === "nobody") return {};
    const isPlatform = name.startsWith("platform_");
    const { key } = await keys.create({
      orgId: isPlatform ? "org_platform" : "org_default",
      environmentId: isPlatform ? null : "env_default",
      name,
      roleIds: [`role_${name}`],
      isPlatform,
    });
    return {
      authorization: `Bearer ${key}`,
      ...(group === "as tenant" && { "x-svc-org": "org_default" }),
      ...(group === "elsewhere" && { "x-svc-environment": other.id }),
    };
  };
  const param = (name: string) => (/^env/i.test(name) ? "env_default" : "none");
  const entered = new Map<Asker, Map<string, boolean>>();
  const ways = everyWay(registry);
  await Promise.all(
    askers.map(async (asker) => {
      const headers = await headersOf(asker);
      const own = new Map<string, boolean>();
      for (const way of ways) own.set(keyOf(way), isLetIn(await go(server.url, way, { headers }, { param })));
      entered.set(asker, own);
    }),
  );
  return matrixText(registry, (way, asker) => entered.get(asker)?.get(keyOf(way)) === true);
}

const keyOf = (way: Way): string => `${way.method} ${way.path}`;

if (import.meta.main) {
  const server = await startTestServer({ engine: "libsql" });
  await Bun.write(
    new URL("../contract/auth-matrix.txt", import.meta.url),
    matrixText(server.running.registry),
  );
  await server.stop();
  process.exit(0);
}
