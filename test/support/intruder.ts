import { type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { KindGuard, type TSchema } from "@sinclair/typebox";
import { rpcBindings } from "../../src/edge/rpc.ts";
import { sql } from "../../src/kit/sql.ts";
import { everyWay, go, type Visitor, type Way } from "./every-route.ts";
import { inTurn } from "./night.ts";
import type { TestServer } from "./server.ts";

const idName = /^(id|.*_ids?|.*Ids?)$/;
/** Names that both orgs use for their own things. */
const sharedNames: Record<string, string> = {
  event: "same.event",
  event_name: "same.event",
  email: "x@y.test",
};
const nameOf = (field: string) => sharedNames[field] ?? "same";

/** An input as small as the schema takes, with `id` wherever something is named by its id. */
function sampleOf(schema: TSchema, field: string, id: string): unknown {
  if (KindGuard.IsObject(schema)) {
    const required = new Set(schema.required ?? []);
    return Object.fromEntries(
      Object.entries(schema.properties).flatMap(([name, own]) =>
        required.has(name) || idName.test(name) ? [[name, sampleOf(own, name, id)]] : [],
      ),
    );
  }
  if (KindGuard.IsArray(schema)) return [sampleOf(schema.items, field, id)];
  if (KindGuard.IsUnion(schema)) return sampleOf(schema.anyOf[0]!, field, id);
  if (KindGuard.IsLiteral(schema)) return schema.const;
  if (KindGuard.IsInteger(schema) || KindGuard.IsNumber(schema)) return schema.minimum ?? 1;
  if (KindGuard.IsBoolean(schema)) return false;
  if (!KindGuard.IsString(schema)) return {};
  if (schema.format === "date-time") return "2026-01-01T00:00:00Z";
  return idName.test(field) ? id : nameOf(field);
}

function messageOf(message: DescMessage, id: string): object {
  const body: Record<string, unknown> = {};
  for (const field of message.fields) {
    if (field.fieldKind === "scalar" && field.scalar === ScalarType.STRING) {
      if (idName.test(field.localName)) body[field.localName] = id;
      else if (/^(name|event|topic|pattern)$/.test(field.localName))
        body[field.localName] = nameOf(field.localName);
    } else if (field.fieldKind === "list" && idName.test(field.localName)) body[field.localName] = [id];
  }
  return body;
}

/** Where an id stands in what is sent on a way: a parameter of its path, or a field. */
export interface Place {
  in: "path" | "body";
  name: string;
}

/** Every place of the way where an id may stand. */
export function placesOf(way: Way): Place[] {
  if (way.operation.mode !== "unary") return [];
  const params = [...way.path.matchAll(/\{(\w+)/g)].map(([, name]): Place => ({ in: "path", name: name! }));
  const fields = Object.keys(probe(way, "")).filter(
    (name) => idName.test(name) && !params.some((param) => param.name === name),
  );
  return [...params, ...fields.map((name): Place => ({ in: "body", name }))];
}

/** What is sent on a way when `id` names everything. */
function probe({ operation, protocol, path }: Way, id: string): object {
  if (operation.mode !== "unary") return {};
  if (protocol === "rest") return sampleOf(operation.input, "", id) as object;
  const binding = rpcBindings(operation).find(({ method }) =>
    path.endsWith(`.${method.parent.name}/${method.name}`),
  );
  return binding ? messageOf(binding.method.input, id) : {};
}

/** They take no id and answer nothing of others; sessions of the visitor would be over. */
const endsVisits = new Set(["auth.logout", "auth.endOtherSessions"]);

/** The caller chooses the id that these make something under: one that somebody else's thing has is as good as any. */
const choosesIds = new Set(["config.put", "functions.register", "workers.register"]);

const generated =
  /\b[a-z]{2,8}_([0-9abcdefghjkmnpqrstvwxyz]{26}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\b/g;
/** Of requests and rows that belong to nobody's data. */
const ignoredKinds = new Set(["req", "aud", "node"]);

/** The intruder's own audit, a section of its export, has the ids that it asked for. */
const withoutAudit = (text: string) => text.replaceAll(/^\{"section":"audit",.*\n/gm, "");

/** Every generated id that stands in a row of the org, by kind: of each kind the first. */
export async function idsOf(
  server: TestServer,
  orgId: string,
  environmentId: string,
): Promise<Map<string, string>> {
  const { store } = server.running.domain;
  const tables = await store.all<{ name: string }>(
    store.engine === "postgres"
      ? sql`SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema() AND tablename NOT LIKE 'auth_audit%'`
      : sql`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name NOT LIKE 'auth_audit%'`,
  );
  const lines: string[] = [];
  const things = new Set<unknown>();
  // Ids of things that are there, and not of an event that is yet to come.
  for (const { name } of tables)
    for (const row of await store.all<{ id?: unknown }>(sql`SELECT * FROM ${sql.raw(name)}`)) {
      lines.push(JSON.stringify(row));
      if (name !== "delayed_events") things.add(row.id);
    }
  const known = new Set([orgId, environmentId]);
  for (let before = -1; before !== known.size; ) {
    before = known.size;
    for (const line of lines)
      if ([...known].some((id) => line.includes(id)))
        for (const [id] of line.matchAll(generated)) known.add(id);
  }
  const byKind = new Map<string, string>();
  for (const id of known) {
    const kind = id.slice(0, id.indexOf("_"));
    if (ignoredKinds.has(kind)) continue;
    if (!byKind.has(kind) || (things.has(id) && !things.has(byKind.get(kind)))) byKind.set(kind, id);
  }
  return byKind;
}

/** Of the same form, and nobody's. */
export const nobodys = (id: string): string =>
  id.slice(0, -6) + (id.endsWith("ffffff") ? "eeeeee" : "ffffff");

interface Shown {
  status: number;
  text: string;
  headers: Headers;
}

/** Of every answer its own. */
const ownHeaders = new Set(["date", "x-request-id", "content-length", "set-cookie"]);

/** An answer, headers included, without what differs from call to call. */
function shown(answer: Shown, sent: string): string {
  const headers = [...answer.headers]
    .filter(([name]) => !ownHeaders.has(name))
    .map(([name, value]) => `${name}: ${value}`);
  const text = [...headers, answer.text]
    .join("\n")
    .replaceAll(sent, "SENT")
    .replaceAll(encodeURIComponent(sent), "SENT")
    .replace(generated, "GENERATED")
    .replace(/\b(ifkey|ifplatform|ifwh)_\w+/g, "KEY")
    .replace(/eyJ[\w-]+\.[\w-]+\.[\w-]+/g, "TOKEN")
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, "TIME")
    .replace(/"(uptime|latency|age)\w*":\s*[\d.]+/g, "NUMBER");
  return `${answer.status} ${text}`;
}

/** Ids that each way is tried with by the first visitor, and by each other one. */
const idsByDay = { first: 3, others: 1 };
/** Ids of the victim's at each place beside own ones, and own ids that stand beside each. */
const besideByDay = { theirs: 3, own: 1 };
/** What tests plant is for every visitor to find, with every id. */
const isPlanted = (way: Way) => way.operation.name.startsWith("test.");

export interface Intrusion {
  way: string;
  visitor: string;
  why: string;
}

export interface IntruderOptions {
  server: TestServer;
  /** Credentials of the intruder's org, by name. */
  visitors: Record<string, Visitor>;
  /** Ids of the victim's org, by kind. */
  ids: ReadonlyMap<string, string>;
  /** Texts that stand in the victim's data alone. */
  markers: readonly string[];
}

/**
 * Goes every way with the victim's ids and with ids that nobody has: the answers must be the same to the byte, and hold
 * nothing of the victim's. Asked thrice, nobody's id around the victim's, as a call may change what the next one sees.
 */
export async function intrude(options: IntruderOptions): Promise<{ intrusions: Intrusion[]; calls: number }> {
  const { server, visitors, ids, markers } = options;
  const intrusions: Intrusion[] = [];
  let calls = 0;
  const secrets = [...markers, ...ids.values()];
  const ofFirst = inTurn([...ids], idsByDay.first);
  const ofOthers = inTurn([...ids], idsByDay.others);
  for (const way of everyWay(server.running.registry)) {
    const ask = async (visitor: Visitor, id: string) => {
      calls++;
      return go(server.url, way, visitor, { param: () => id, body: probe(way, id) });
    };
    if (choosesIds.has(way.operation.name) || endsVisits.has(way.operation.name)) continue;
    const isDeaf = (id: string) => !way.path.includes("{") && !JSON.stringify(probe(way, id)).includes(id);
    for (const [at, [name, visitor]] of Object.entries(visitors).entries()) {
      const tell = (why: string) => intrusions.push({ way: `${way.method} ${way.path}`, visitor: name, why });
      const leaks = (text: string, sent: string) => {
        for (const secret of secrets)
          if (secret !== sent && text.includes(secret)) tell(`answers ${secret}: ${text.slice(0, 200)}`);
      };
      for (const [kind, id] of isPlanted(way) ? ids : at === 0 ? ofFirst() : ofOthers()) {
        const other = nobodys(id);
        if (isDeaf(id)) {
          const { text } = await ask(visitor, id);
          leaks(way.operation.name === "orgs.export" ? withoutAudit(text) : text, "");
          break;
        }
        const before = await ask(visitor, other);
        const theirs = await ask(visitor, id);
        leaks(theirs.text, id);
        if (shown(theirs, id) === shown(before, other)) continue;
        const after = await ask(visitor, other);
        if (shown(theirs, id) !== shown(after, other))
          tell(`${kind}: ${shown(theirs, id).slice(0, 200)} instead of ${shown(after, other).slice(0, 200)}`);
      }
    }
  }
  return { intrusions, calls };
}

/**
 * The same where one of several ids is the victim's, and the others are the intruder's own: whoever looks at its parent alone
 * lets it in by the back door.
 */
export async function intrudeBeside(
  options: IntruderOptions & { own: ReadonlyMap<string, string> },
): Promise<{ intrusions: Intrusion[]; calls: number }> {
  const { server, visitors, ids, markers, own } = options;
  const intrusions: Intrusion[] = [];
  let calls = 0;
  const secrets = [...markers, ...ids.values()];
  const theirsInTurn = inTurn([...ids], besideByDay.theirs);
  const ownInTurn = inTurn([...own.values()], besideByDay.own);
  for (const way of everyWay(server.running.registry)) {
    const places = placesOf(way);
    // The trail tells an org again what its people have sent.
    if (places.length < 2 || way.operation.name.startsWith("audit.")) continue;
    for (const [name, visitor] of Object.entries(visitors))
      for (const place of places)
        for (const [kind, id] of isPlanted(way) ? ids : theirsInTurn())
          for (const beside of ownInTurn()) {
            const idAt = (at: Place["in"], field: string, sent: string) =>
              at === place.in && field === place.name ? sent : beside;
            const ask = (sent: string) => {
              calls++;
              const body = Object.fromEntries(
                Object.entries(probe(way, beside)).map(([field, value]) => {
                  if (!idName.test(field)) return [field, value];
                  const at = idAt("body", field, sent);
                  return [field, Array.isArray(value) ? [at] : at];
                }),
              );
              return go(server.url, way, visitor, { param: (field) => idAt("path", field, sent), body });
            };
            const tell = (why: string) =>
              intrusions.push({
                way: `${way.method} ${way.path}`,
                visitor: name,
                why: `${place.name} ${why}`,
              });
            const other = nobodys(id);
            const before = await ask(other);
            const theirs = await ask(id);
            for (const secret of secrets)
              if (secret !== id && theirs.text.includes(secret))
                tell(`answers ${secret}: ${theirs.text.slice(0, 200)}`);
            if (shown(theirs, id) === shown(before, other)) continue;
            const after = await ask(other);
            if (shown(theirs, id) !== shown(after, other))
              tell(
                `${kind}: ${shown(theirs, id).slice(0, 400)} instead of ${shown(after, other).slice(0, 400)}`,
              );
          }
  }
  return { intrusions, calls };
}

/** Which of these reads tell the victim's own admin a real id from nobody's: proof that the probes reach what they are meant to. */
export async function reached(
  server: TestServer,
  { visitor, ids, reads }: { visitor: Visitor; ids: ReadonlyMap<string, string>; reads: readonly string[] },
): Promise<string[]> {
  const found = new Set<string>();
  for (const way of everyWay(server.running.registry)) {
    if (!reads.includes(way.operation.name)) continue;
    for (const id of ids.values()) {
      const [real, none] = await Promise.all(
        [id, nobodys(id)].map((one) =>
          go(server.url, way, visitor, { param: () => one, body: probe(way, one) }),
        ),
      );
      if (shown(real!, id) !== shown(none!, nobodys(id))) found.add(way.operation.name);
    }
  }
  return [...found];
}

/** An answer in lines is a list of them. */
const jsonOf = (text: string): unknown =>
  JSON.parse(text.includes("\n{") ? `[${text.trimEnd().replaceAll("\n", ",")}]` : text);

const isList = (body: unknown): boolean =>
  Array.isArray(body) ||
  (typeof body === "object" &&
    body !== null &&
    // A message leaves out a list that is empty.
    (Object.keys(body).length === 0 || Object.values(body).some(Array.isArray)));

/**
 * Reads that answer lists in which the victim's own admin finds neither a marker nor an id, and that tell its ids from
 * nobody's by nothing: what they would tell an intruder nobody could see.
 */
export async function unshown(options: IntruderOptions): Promise<string[]> {
  const { server, visitors, ids, markers } = options;
  const secrets = [...markers, ...ids.values()];
  const shows = new Map<string, boolean>();
  // The record of requests begins with the first call, and holds the last ones alone: those that ask here, with ids in their paths.
  const ways = [...everyWay(server.running.registry)];
  const records = ways.filter(({ operation }) => operation.name === "debug.requests");
  for (const way of [...records, ...ways, ...records]) {
    const { name, reads, mode } = way.operation;
    if (!reads || mode !== "unary" || shows.get(name) === true) continue;
    const ask = (id: string, body = probe(way, id)) =>
      go(server.url, way, visitors.admin!, { param: () => id, body });
    const look = ({ status, text }: Shown, asked: string, isTold = false) => {
      if (status !== 200 || !/^\s*[[{]/.test(text) || !isList(jsonOf(text))) return;
      const isShown = isTold || secrets.some((secret) => secret !== asked && text.includes(secret));
      shows.set(name, isShown || shows.get(name) === true);
    };
    look(await ask("none", {}), "");
    for (const id of ids.values()) {
      if (shows.get(name) === true) break;
      const [real, none] = [await ask(id), await ask(nobodys(id))];
      const isNamed = way.path.includes("{") || JSON.stringify(probe(way, id)).includes(id);
      look(real, id, isNamed && shown(real, id) !== shown(none, nobodys(id)));
    }
  }
  return [...shows].flatMap(([name, isShown]) => (isShown ? [] : [name]));
}
