import { chanceOf } from "../support/chance.ts";
import { sharedPostgres } from "../support/postgres.ts";
import { makeHomeAt, startTestServer, type TestServer } from "../support/server.ts";
import { doors, type ScriptedCall, script, texts } from "./engines-calls.ts";
import type { AttackSuite } from "./suite.ts";

/** What a server answered, with everything that two servers may say differently taken out. */
export interface PlainAnswer {
  status: number;
  body: string;
}

export type Side = (call: ScriptedCall) => Promise<PlainAnswer>;

/** Ids, secrets and instants say only their kind, so that equal answers are equal texts. */
export const plain = (text: string): string =>
  text
    .replace(/\b([a-z]{2,6})_[0-9a-z]{26}\b/g, "<$1>")
    .replace(/\bhist_[0-9a-z]{26}_/g, "<hist>_")
    .replace(/\bak_[0-9a-f-]{36}\b/g, "<ak>")
    .replace(/\bifkey_[0-9a-f]{8,32}\b/g, "<key>")
    .replace(/"(next_?[cC]ursor|prev_cursor)":"[\w-]+"/g, '"$1":"<cursor>"')
    .replace(/\b[0-9a-f]{32}\b/g, "<reference>")
    .replace(/20\d\d-\d\d-\d\dT[\d:.]+Z/g, (at) => (at.startsWith("2026-01-01") ? at : "<at>"));

const sideOf =
  (server: TestServer): Side =>
  async ({ method, path, body, headers }) => {
    const response = await fetch(`${server.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${server.adminKey}`,
        ...(body !== undefined && { "content-type": "application/json" }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(30_000),
    });
    return { status: response.status, body: plain(await response.text()) };
  };

/** Both texts from a little before where they part. */
function difference(one: string, other: string): string {
  let at = 0;
  while (at < one.length && one[at] === other[at]) at++;
  const from = Math.max(0, at - 60);
  return `${one.slice(from, at + 100)} | ${other.slice(from, at + 100)}`;
}

/** The calls of a script, one after the other at both sides at once; a sentence for each answer that differs. */
export async function compare(calls: Iterable<ScriptedCall>, sides: readonly [Side, Side]) {
  const breaches: string[] = [];
  let attempts = 0;
  for (const call of calls) {
    attempts++;
    const [one, other] = await Promise.all([sides[0](call), sides[1](call)]);
    if (one.status >= 500 || other.status >= 500)
      breaches.push(`${call.about}: answered ${one.status} and ${other.status}`);
    else if (one.status !== other.status || one.body !== other.body)
      breaches.push(`${call.about}: ${one.status} and ${other.status}: ${difference(one.body, other.body)}`);
  }
  return { attempts, breaches };
}

/** Behind the script: what it wrote is looked for by every text, in every list that compares texts. */
function* searches(): Generator<ScriptedCall> {
  const get = (path: string, name: string, text: string): ScriptedCall => ({
    about: `GET ${path} ${name}=${JSON.stringify(text).slice(0, 40)} (search)`,
    method: "GET",
    path: `${path}?${new URLSearchParams({ [name]: text.toWellFormed(), limit: "5" })}`,
  });
  const rpc = (method: string, body: object): ScriptedCall => ({
    about: `${method} ${JSON.stringify(body).slice(0, 60)} (search)`,
    method: "POST",
    path: `/svc.v1.SvcService/${method}`,
    body,
  });
  for (const text of texts.filter((one) => one.trim() !== "")) {
    yield get("/api/v1/events", "name", text);
    yield get("/api/v1/events", "names", text);
    yield rpc("ListFunctions", { name: text, limit: 5 });
    yield rpc("ListRuns", { search: text, limit: 5 });
  }
  for (const path of ["roles", "users", "policies", "secrets", "apikeys", "environments", "projects"])
    yield { about: `GET ${path} (search)`, method: "GET", path: `/api/v1/${path}` };
}

const shortCalls = 600;

function* first<T>(items: Iterable<T>, count: number): Generator<T> {
  let taken = 0;
  for (const item of items) {
    if (taken++ >= count) return;
    yield item;
  }
}

export async function attackEngines(options: {
  seed: number;
  long: boolean;
  /** In place of the two stores' servers. */
  sides?: readonly [Side, Side];
}) {
  const calls = function* () {
    const scripted = script(chanceOf(`engines ${options.seed}`));
    yield* options.long ? scripted : first(scripted, shortCalls);
    yield* searches();
  };
  if (options.sides) return compare(calls(), options.sides);
  const postgres = await sharedPostgres();
  const home = await makeHomeAt(await postgres.createDatabase({ icuLocale: "en-US" }));
  const servers = await Promise.all([
    startTestServer({ engine: "libsql" }),
    startTestServer({ engine: "postgres", home }),
  ]);
  try {
    for (const server of servers)
      await server.rpc("SvcService", "RegisterFunction", {
        id: "script",
        triggers: [{ event: "script.emit" }, { event: "Ärger.neu" }],
      });
    const [one, other] = servers.map(sideOf);
    return await compare(calls(), [one!, other!]);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
    await postgres.dropDatabase(home.place.databaseUrl!);
    await home.remove();
  }
}

export const suite: AttackSuite = {
  name: "engines",
  about: "the same scripted calls at libSQL and PostgreSQL, compared answer by answer",
  async run({ seed, long }) {
    const { attempts, breaches } = await attackEngines({ seed, long });
    const fieldCount = doors.reduce((sum, door) => sum + door.fields.length, 0);
    return { size: `${fieldCount} fields of ${doors.length} operations`, attempts, breaches };
  },
};
