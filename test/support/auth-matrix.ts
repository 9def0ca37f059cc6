import { join } from "node:path";
import {
  type Action,
  actions,
  type BuiltInRole,
  builtInRoles,
  isAction,
  roleGrants,
} from "../../src/gate/actions.ts";
import type { Operation } from "../../src/kit/operation.ts";
import { sql } from "../../src/kit/sql.ts";
import { everyWay, go, isLetIn, logoutLast, type Visited, type Visitor, type Way } from "./every-route.ts";
import { type BoundFrame, everyFrame, shapeOf } from "./frames.ts";
import { policiesOf } from "./policy-doors.ts";
import { startTestServer, type TestServer } from "./server.ts";

export const matrixPath = join(import.meta.dir, "../contract/auth-matrix.txt");

/**
 * Where a caller wants to act. Tenants come with a key of an environment of `org_default`, or with a session; platform
 * credentials for themselves, or in a tenant's org by `X-Svc-Org`.
 */
const places = {
  own: { roles: "tenant", about: "with a key, in its environment" },
  other: { roles: "tenant", about: "with a key, another environment of its org selected" },
  foreign: { roles: "tenant", about: "with a key, another org's environment selected" },
  session: { roles: "tenant", about: "with a session, in an environment of the org" },
  "session foreign": { roles: "tenant", about: "with a session, another org's environment selected" },
  "session org": { roles: "tenant", about: "with a session, another org named by X-Svc-Org" },
  platform: { roles: "platform", about: "for themselves" },
  "as tenant": { roles: "platform", about: "in a tenant's org by X-Svc-Org, in its environment" },
  "as tenant foreign": { roles: "platform", about: "in a tenant's org, another org's environment selected" },
  "no org": { roles: "platform", about: "by X-Svc-Org in an org that is not there" },
  nobody: { roles: "nobody", about: "no credential" },
} as const satisfies Record<string, { roles: keyof typeof rolesOf; about: string }>;

const rolesOf = {
  tenant: { admin: "a", developer: "d", viewer: "v" },
  platform: { platform_admin: "a", platform_operator: "o", platform_viewer: "v" },
  nobody: { nobody: "n" },
} as const;

export type Place = keyof typeof places;

export interface Asker {
  role: string;
  /** Stands where it is let in. */
  letter: string;
  place: Place;
}

/** Who asks, in the order of the columns. */
export const askers: readonly Asker[] = (Object.keys(places) as Place[]).flatMap((place) =>
  Object.entries(rolesOf[places[place].roles]).map(([role, letter]) => ({ role, letter, place })),
);

/** `unknown`: what is named is not there, as far as this caller is told. */
export type Entry = "in" | "refused" | "unknown";

const holds = (role: string, action: Action): boolean =>
  (actions[action] as readonly BuiltInRole[]).includes(role as BuiltInRole);

/** proto/README.md 'Impersonation'. */
function impersonationNeeds({ operation, method }: Way): Action {
  const { action } = operation;
  const reads =
    action === "authenticated" || action === null ? method === "GET" : /:(read|list|subscribe)$/.test(action);
  return reads ? "platform:impersonate:read" : "platform:impersonate";
}

const isSession = (place: Place) => place.startsWith("session");
const isTenant = ({ place }: Asker) => places[place].roles === "tenant";

/** By an operation's name, or the group of it: where a handler asks for more than its action says, when asked as here: with no input, about nothing that is there. */
const handlersAsk: Record<string, { why: string; enters: (asker: Asker) => boolean }> = {
  "capacity.": { why: "of platform credentials", enters: (asker) => !isTenant(asker) },
  "tenants.list": { why: "of platform credentials", enters: ({ place }) => place === "as tenant" },
  "auth.validate": {
    why: "answers 401 about whatever is no session",
    enters: ({ place }) => isSession(place),
  },
  "auth.desktopSession": { why: "of a tenant's key", enters: ({ place }) => place === "own" },
  "keys.list": { why: "the platform's with platform=true", enters: ({ place }) => place !== "platform" },
  "users.get": {
    why: "others than oneself with users:read",
    enters: (asker) => !isTenant(asker) || asker.role === "admin",
  },
};

const askedBy = ({ operation: { name } }: Way) =>
  handlersAsk[name] ?? handlersAsk[name.slice(0, name.indexOf(".") + 1)];

/** What the specification says of this asker; written from it, not from the gate. */
export function entryOf(way: Way, asker: Asker): Entry {
  const passes = passesAt(way, asker);
  if (passes === "unknown") return passes;
  return passes && (askedBy(way)?.enters(asker) ?? true) ? "in" : "refused";
}

function passesAt(way: Way, { role, place }: Asker): boolean | "unknown" {
  const { action, platformAction } = way.operation;
  if (action === null) return true;
  switch (place) {
    case "nobody":
    case "other":
      return false;
    case "foreign":
    case "session foreign":
      return "unknown";
    case "own":
    case "session":
    case "session org":
      // No tenant's credential is the platform's, whatever its roles grant; nor does X-Svc-Org mean anything with it.
      if (action.startsWith("platform:")) return false;
      return action === "authenticated" || (isAction(action) && holds(role, action));
    case "as tenant":
    case "as tenant foreign":
    case "no org":
      // `X-Svc-Org` means nothing to the platform's own routes.
      if (way.path.startsWith("/api/v1/platform/")) break;
      return place === "as tenant" ? holds(role, impersonationNeeds(way)) : "unknown";
    case "platform":
      break;
  }
  if (platformAction === "authenticated") return true;
  const needed = platformAction ?? (action.startsWith("platform:") ? action : "");
  return isAction(needed) && holds(role, needed);
}

const marks = { refused: "-", unknown: "0" } as const;

const protocols = {
  rest: "rest",
  connect: "connect",
  stream: "connect-stream",
  socket: "websocket",
} as const;

/**
 * Who may do what, who is let in where, and how deny policies bind each operation. Whom the socket lets in may
 * send each of its frames.
 */
export function matrixText(registry: readonly Operation[], enters = entryOf): string {
  const lines = everyWay(registry).flatMap((way) => {
    const cells = (Object.keys(places) as Place[]).map((place) =>
      askers
        .filter((asker) => asker.place === place)
        .map((asker) => {
          const entry = enters(way, asker);
          return entry === "in" ? asker.letter : marks[entry];
        })
        .join(""),
    );
    const { name, action } = way.operation;
    const asks = askedBy(way);
    const lineOf = (entrance: string) =>
      [
        cells.join(" "),
        name,
        action ?? "public",
        protocols[way.protocol],
        entrance,
        ...(asks ? [`(${asks.why})`] : []),
        ...(action === null ? [] : [policiesOf(way.operation)]),
      ].join("  ");
    const frames = way.protocol === "socket" ? everyFrame([way.operation]) : [];
    const sent = frames.filter(({ from }) => from === "client").map(frameText);
    return [`${way.method} ${way.path}`, ...sent].map(lineOf);
  });
  return `${heading(registry)}${lines.join("\n")}\n`;
}

/** Every action, and the built-in roles that grant it. */
function actionsTable(): string[] {
  const names = Object.keys(actions) as Action[];
  const width = Math.max(...names.map((name) => name.length));
  const line = (first: string, cells: readonly string[]) =>
    `# ${first.padEnd(width)}  ${cells.map((cell, at) => cell.padEnd(builtInRoles[at]!.length)).join("  ")}`.trimEnd();
  const rows = names.map((name) =>
    line(
      name,
      builtInRoles.map((role) => (roleGrants([role], name) ? "yes" : "-")),
    ),
  );
  return [line("action", builtInRoles), ...rows];
}

const headed = (Object.keys(places) as Place[]).map((place) => {
  const { roles, about } = places[place];
  const letters = Object.values(rolesOf[roles]).join("");
  return `# ${letters.padEnd(3)}  ${Object.keys(rolesOf[roles]).join(", ")}: ${about}`;
});

const frameText = ({ from, type, schema }: BoundFrame): string => `${from} ${type} ${shapeOf(schema)}`;

/** What the server sends over the socket, a frame a line. */
const answers = (registry: readonly Operation[]): string =>
  everyFrame(registry)
    .filter(({ from }) => from === "server")
    .map((frame) => {
      const { name, action } = frame.operation;
      return `# ${name}  ${action}  websocket  ${frameText(frame)}`;
    })
    .join("\n");

const heading = (
  registry: readonly Operation[],
) => `# Written by \`bun run refresh\`. The difference of a change is what strangers may do from now on.
#
# Which built-in role grants which action:
#
${actionsTable().join("\n")}
#
# Frames that the socket sends; those that it takes stand below, each as a way in.
${answers(registry)}
#
# Each way into an operation: who is let in, the operation, its action, protocol and route, in brackets what its handler asks
# besides, and how deny policies bind it.
# A letter is let in, - is refused with 401 or 403, 0 is told that what it names is not there, byte for byte as with an id that
# nobody has. Columns of letters, left to right:
${headed.join("\n")}
`;

/** The routes and frames of the text: name, action, protocol, way. */
export const routesIn = (text: string): string[] =>
  text
    .split("\n")
    .flatMap((line) => {
      if (/^# \S+ {2}\S+ {2}websocket {2}/.test(line)) return [line.slice(2)];
      return line === "" || line.startsWith("#") ? [] : [line.split("  ").slice(1, 5).join("  ")];
    })
    .sort();

const nobodysEnvironment = "env_00000000000000000000000000";
const nobodysOrg = "org_00000000000000000000000000";

/** An asker's headers, and the same with what it names exchanged for what nobody has. */
interface Asking {
  visitor: Visitor;
  nobodys?: { visitor: Visitor; named: string; instead: string };
}

/** Two orgs, and every asker's credential of the first one. */
async function furnish(server: TestServer): Promise<(asker: Asker) => Promise<Asking>> {
  const { keys, tenancy, store } = server.running.domain;
  const { id: otherEnvironment } = await tenancy.createEnvironment({ orgId: "org_default", name: "other" });
  const farOrg = "org_far";
  await store.write(async (session) => {
    await session.run(
      sql`INSERT INTO orgs (id, name, created_at, updated_at) VALUES (${farOrg}, ${"far"}, 1, 1)`,
    );
    await session.run(
      sql`INSERT INTO projects (id, org_id, name, created_at, updated_at) VALUES ('proj_far', ${farOrg}, ${"far"}, 1, 1)`,
    );
  });
  const far = { orgId: farOrg, projectId: "proj_far", name: "far" };
  const { id: farEnvironment } = await tenancy.createEnvironment(far);
  const keyOf = async (role: string) => {
    const isPlatform = role.startsWith("platform_");
    const { key } = await keys.create({
      orgId: isPlatform ? "org_platform" : "org_default",
      environmentId: isPlatform ? null : "env_default",
      name: role,
      roleIds: [`role_${role}`],
      isPlatform,
    });
    return key;
  };
  /** Of a user for each asker: among all that they ask is a logout, and the end of all other sessions. */
  const sessionOf = async ({ role, place }: Asker): Promise<string> => {
    const email = `${role}.${place.replaceAll(" ", ".")}@example.test`;
    const login = { email, password: "correct horse battery" };
    await server.api("/api/v1/users", { body: { ...login, roles: [role] } });
    return (await server.api("/api/v1/auth/login", { key: null, body: login })).body.token;
  };
  return async (asker) => {
    const { role, place } = asker;
    if (place === "nobody") return { visitor: { headers: {} } };
    const credential = await (isSession(place) ? sessionOf(asker) : keyOf(role));
    const as = (headers: Record<string, string>) => ({
      headers: { authorization: `Bearer ${credential}`, ...headers },
    });
    const selecting = (named: string, headers = {}) => ({
      visitor: as({ ...headers, "x-svc-environment": named }),
      nobodys: {
        visitor: as({ ...headers, "x-svc-environment": nobodysEnvironment }),
        named,
        instead: nobodysEnvironment,
      },
    });
    switch (place) {
      case "other":
        return { visitor: as({ "x-svc-environment": otherEnvironment }) };
      case "foreign":
      case "session foreign":
        return selecting(farEnvironment);
      case "session":
        return { visitor: as({ "x-svc-environment": otherEnvironment }) };
      case "session org":
        return { visitor: as({ "x-svc-org": farOrg }) };
      case "as tenant":
        return { visitor: as({ "x-svc-org": "org_default" }) };
      case "as tenant foreign":
        return selecting(farEnvironment, { "x-svc-org": "org_default" });
      case "no org":
        return { visitor: as({ "x-svc-org": nobodysOrg }) };
      default:
        return { visitor: as({}) };
    }
  };
}

/** What differs from call to call. */
const bare = ({ status, text }: Visited, named: string): string =>
  `${status} ${text.replaceAll(named, "NAMED")}`;

const entryBy = (answer: Visited): Entry => {
  if (!isLetIn(answer)) return "refused";
  return /unknown environment|org org_\w+ not found/.test(answer.text) ? "unknown" : "in";
};

/** The same text, from what a server does, and where a foreign id was answered otherwise than one that nobody has. */
export async function askEverywhere(server: TestServer): Promise<{ text: string; differences: string[] }> {
  const { registry } = server.running;
  const asking = await furnish(server);
  const param = (name: string) => (/^env/i.test(name) ? "env_default" : "none");
  const entered = new Map<Asker, Map<string, Entry>>();
  const differences: string[] = [];
  const ways = logoutLast(everyWay(registry));
  await Promise.all(
    askers.map(async (asker) => {
      const { visitor, nobodys } = await asking(asker);
      const own = new Map<string, Entry>();
      for (const way of ways) {
        const answer = await go(server.url, way, visitor, { param });
        own.set(keyOf(way), entryBy(answer));
        if (!nobodys || entryBy(answer) !== "unknown") continue;
        const none = await go(server.url, way, nobodys.visitor, { param });
        const [theirs, nothing] = [bare(answer, nobodys.named), bare(none, nobodys.instead)];
        if (theirs !== nothing) differences.push(`${keyOf(way)}: ${theirs} instead of ${nothing}`);
      }
      entered.set(asker, own);
    }),
  );
  const text = matrixText(registry, (way, asker) => entered.get(asker)!.get(keyOf(way))!);
  return { text, differences };
}

const keyOf = (way: Way): string => `${way.method} ${way.path}`;

export async function writeMatrix(): Promise<void> {
  const server = await startTestServer({ engine: "libsql" });
  await Bun.write(matrixPath, matrixText(server.running.registry));
  await server.stop();
}
