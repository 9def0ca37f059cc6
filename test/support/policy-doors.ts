import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { KindGuard, type TSchema } from "@sinclair/typebox";
import { rpcBindings } from "../../src/edge/rpc.ts";
import { subjectOf } from "../../src/gate/subject.ts";
import type { Operation, UnaryOperation } from "../../src/kit/operation.ts";
import { everyWay, go, type Way } from "./every-route.ts";

/** The name of the thing that policies of these tests are about. */
export const named = "doorthing";

/**
 * Operations that are asked about no single thing and answer no list whose items deny policies could name, each with the reason. An
 * operation that is neither here nor names, lists or finds something fails the test: whoever adds one decides how policies bind it.
 */
export const asWhole: Record<string, string> = {
  "auth.session": "about the caller alone, who may know what its own roles grant",
  "auth.logout": "about the caller's own session alone",
  "auth.sessions": "about the caller's own sessions alone",
  "auth.endOtherSessions": "about the caller's own sessions alone",
  "auth.desktopSession": "about the caller alone, who is asked about by every call of the session",
  "audit.settings": "settings of the server",
  "audit.verify": "a chain, which holds as a whole",
  "audit.authTrail": "who did what: orgs:read as a whole, or who is audited would choose what is seen",
  "capacity.lanes": "the platform's, over all environments",
  "capacity.queue": "the platform's, over all environments",
  "capacity.leases": "the platform's, over all environments",
  "capacity.buckets": "the platform's, over all environments",
  "capacity.sessions": "the platform's, over all environments",
  "capacity.credits": "the platform's, over all environments",
  "capacity.stats": "the platform's, over all environments",
  "cluster.health": "nodes, which are no tenant's",
  "integrity.report": "counts",
  "overview.get": "counts, and nodes, which are no tenant's",
  "overview.rates": "counts",
  "flow.streamEdges":
    "types of entities, which policies do not name; edges with an event that is denied are left out",
  "platform.audit.list": "the platform's own record, as a whole",
  "platform.bootstrap": "the first platform user, before there are any",
  "policies.dryRun": "past decisions of the org, as a whole",
  "policyTemplates.list": "texts of the product",
  "repairs.preview": "lists runs, and has no name of its own",
  "repairs.start": "each run is asked about when its turn comes",
  "runs.deleteMany": "each run is asked about when its turn comes",
  "retention.get": "a setting of the environment",
  "schemas.setMode": "a setting of the environment",
  "retention.set": "a setting of the environment",
  "signIn.get": "a setting of the org",
  "signIn.update": "a setting of the org",
  "platform.signIn.get": "a setting of the platform",
  "platform.signIn.update": "a setting of the platform",
  "server.openapi": "about the server",
  "server.routes": "about the server",
  "tenants.provision": "makes what has no name yet",
  "keys.create": "makes what has no id yet",
  "orgs.create": "makes what has no id yet",
  "debug.requests": "requests of the whole org: orgs:read, as for the trail of who did what",
  "debug.clear": "the same",
  "audit.trail": "has no name of its own",
};

/** Operations about one thing whose answer holds more of the same kind, as parts of the one. */
const ofOne: Record<string, string> = {
  "functions.history": "of the one function",
  "policies.ofRole": "of the one role",
  "policies.versions": "of the one policy",
  "platform.policies.ofRole": "of the one role",
  "runs.steps": "of the one run",
};

const fieldsThatName = (operation: Operation): string[] => {
  const probe = Object.fromEntries(
    Object.keys((operation.input as { properties?: object }).properties ?? {}).map((field) => [field, named]),
  );
  return operation.about || subjectOf(operation).idsOf(probe).includes("*") ? [] : [named];
};

/** Whether its input names what it is about. */
export const names = (operation: Operation): boolean =>
  operation.about !== undefined || fieldsThatName(operation).length > 0;

/** How deny policies bind an operation that is not public, in a line. */
export function policiesOf(operation: Operation): string {
  const { name, alsoAsks = [], costs, environmentOf } = operation;
  const { lists, finds } = operation as UnaryOperation;
  const { type } = subjectOf(operation);
  const how = [
    names(operation) ? `${type} that is named` : `${type} *`,
    ...(finds ? ["and by its own name when found"] : []),
    ...(alsoAsks.length > 0 ? [`also ${alsoAsks.join(", ")}`] : []),
    ...(environmentOf ? ["in the environment that is named too"] : []),
    ...(costs ? ["more when the input costs more"] : []),
    ...(lists ? [`answers without ${lists.type ?? type} that is denied`] : []),
    ...(ofOne[name] ? [`answers parts ${ofOne[name]}`] : []),
    ...(asWhole[name] ? [`as a whole: ${asWhole[name]}`] : []),
  ];
  return how.join("; ");
}

/** Operations for which nobody has decided. */
export const undecided = (registry: readonly Operation[]): string[] =>
  registry
    .filter((operation) => operation.action !== null)
    .filter(({ name }) => asWhole[name] === undefined)
    .filter((operation) => {
      const { lists } = operation as UnaryOperation;
      // A list may also be asked about one thing, so the name alone is not enough.
      if (/\.(list|names|deadLetters)$/.test(operation.name))
        return lists === undefined && operation.name !== "events.list";
      return lists === undefined && !names(operation);
    })
    .map(({ name }) => name);

function sampleOf(schema: TSchema): unknown {
  if (KindGuard.IsUnion(schema)) return sampleOf(schema.anyOf[0]!);
  if (KindGuard.IsLiteral(schema)) return schema.const;
  if (KindGuard.IsInteger(schema) || KindGuard.IsNumber(schema)) return schema.minimum ?? 1;
  if (KindGuard.IsBoolean(schema)) return true;
  if (KindGuard.IsArray(schema)) return [sampleOf(schema.items)];
  if (KindGuard.IsObject(schema))
    return Object.fromEntries(
      Object.entries(schema.properties)
        .filter(([field]) => schema.required?.includes(field))
        .map(([field, property]) => [field, sampleOf(property)]),
    );
  return named;
}

function fieldOf(field: DescField, depth: number): unknown {
  if (field.fieldKind === "scalar") {
    if (field.scalar === ScalarType.STRING) return named;
    if (field.scalar === ScalarType.BOOL) return true;
    return field.scalar === ScalarType.BYTES ? undefined : 1;
  }
  if (field.fieldKind === "enum") return 1;
  if (field.fieldKind === "message" && depth < 3 && !field.message.typeName.startsWith("google."))
    return messageOf(field.message, depth + 1);
  if (field.fieldKind !== "list") return undefined;
  if (field.listKind === "scalar") return [named];
  return field.listKind === "message" && depth < 3 ? [messageOf(field.message, depth + 1)] : undefined;
}

function messageOf(desc: DescMessage, depth = 0): object {
  return Object.fromEntries(
    desc.fields.flatMap((field) => {
      const value = field.oneof && depth > 0 ? undefined : fieldOf(field, depth);
      return value === undefined ? [] : [[field.jsonName, value]];
    }),
  );
}

/** Where what is generated is no input that the operation takes. */
const inputs: Record<string, object> = {
  "functions.register": { id: named, triggers: [] },
  "functions.setStatus": { id: named, status: 1 },
  "runs.list": {},
  "groups.create": { name: named, pattern: `topic:${named}.>` },
  "groups.update": { group: { name: named, pattern: `topic:${named}.>` } },
  "runs.inject": { runId: named, stepId: named, newOutput: "1" },
  "steps.patch": { stepId: named, output: "1", reason: "test" },
  "pubsub.subscribe": { pattern: `events:${named}` },
  "groups.join": { groupName: named },
  "workers.connect": { register: { workerId: "w", functionIds: [named] } },
  "projections.stream": { name: named },
  "runs.output": { runId: named, name: "tokens" },
  "projections.waitStream": { name: named },
  "projections.createSql": {
    ...{ name: named, tableSql: `CREATE TABLE proj_${named} (id text)`, events: [named] },
    eventHandlers: { [named]: `INSERT INTO proj_${named} (id) VALUES (:event_id)` },
  },
  "query.execute": { query: `SELECT * FROM proj_${named}` },
  "schemas.check": { event_name: named },
  "users.changePassword": {
    current_password: "correct horse battery",
    new_password: "correct horse batterie",
  },
  "users.create": { email: `${named}@example.test`, password: "correct horse battery", name: named },
};

/** A request that names the thing, for this way in. */
export function bodyFor(way: Way): object {
  const { operation } = way;
  const given = inputs[operation.name];
  if (given) return given;
  if (way.protocol === "rest") return sampleOf(operation.input) as object;
  const binding = rpcBindings(operation).find(({ method }) => way.path.endsWith(`/${method.name}`));
  return binding ? messageOf(binding.method.input) : {};
}

const enveloped = (message: object): Uint8Array<ArrayBuffer> => {
  const body = new TextEncoder().encode(JSON.stringify(message));
  const frame = new Uint8Array(5 + body.length);
  new DataView(frame.buffer).setUint32(1, body.length);
  frame.set(body, 5);
  return frame;
};

/** What is asked so long is let in. */
const heldMs = 300;

/** The status, and what was said. */
export async function askAt(
  url: string,
  way: Way,
  headers: Record<string, string>,
): Promise<{ status: number; text: string }> {
  if (way.protocol !== "stream") {
    const param = (name: string) =>
      /^env/i.test(name) ? "env_default" : name === "version" || name === "revision" ? "1" : named;
    const { status, text } = await go(url, way, { headers }, { param, body: bodyFor(way) });
    return { status, text };
  }
  const answer = await fetch(`${url}${way.path}`, {
    method: "POST",
    headers: { "content-type": "application/connect+json", ...headers },
    body: enveloped(bodyFor(way)),
    signal: AbortSignal.timeout(heldMs),
  })
    .then((response) => response.text())
    .catch(() => "held");
  return { status: answer.includes("permission_denied") ? 403 : 200, text: answer };
}

export const waysThatName = (registry: readonly Operation[]): Way[] =>
  everyWay(registry).filter(
    ({ operation, protocol, path }) =>
      operation.action !== null &&
      operation.action !== "authenticated" &&
      names(operation) &&
      asWhole[operation.name] === undefined &&
      // Lists leave out; paths that lack a segment are bad requests.
      !/\.(list|names)$/.test(operation.name) &&
      (operation.name !== "debounce.cancel" || path.endsWith("{key}")) &&
      (protocol !== "socket" || operation.mode === "watch"),
  );
