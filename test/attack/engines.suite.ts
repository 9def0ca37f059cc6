import { chanceOf } from "../support/chance.ts";
import { sharedPostgres } from "../support/postgres.ts";
import { makeHomeAt, startTestServer, type TestServer } from "../support/server.ts";
import { doors, type ScriptedCall, script, texts } from "./engines-calls.ts";
import type { AttackSuite } from "./suite.ts";

/** What a server answered, with everything that two servers may say differently taken out. */
export interface PlainAnswer {
  status: number;
  body: string;
  /** To go on with, where the answer is a page. */
  cursor?: string | undefined;
}

export type Side = (call: ScriptedCall) => Promise<PlainAnswer>;

/** Ids, secrets and instants say only their kind, so that equal answers are equal texts; when a key was last used is
 * written once a minute, at another second at each server. */
export const plain = (text: string): string =>
  text
    .replace(/,"last_?[uU]sed_?[aA]t":"[^"]*"/g, "")
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
    const text = await response.text();
    const cursor = /"next_?[cC]ursor":"([\w-]+)"/.exec(text)?.[1];
    return { status: response.status, body: plain(text), cursor };
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

const pageLimit = 25;
const pagesMax = 200;

/** Lists that are walked to their end: every cursor that a page gives is taken by the next. */
const lists: readonly { about: string; page: (cursor: string) => Omit<ScriptedCall, "about"> }[] = [
  ...["/api/v1/events", "/api/v1/audit"].map((path) => ({
    about: path,
    page: (cursor: string) => ({
      method: "GET",
      path: `${path}?${new URLSearchParams({ limit: String(pageLimit), ...(cursor && { cursor }) })}`,
    }),
  })),
  ...["ListRuns", "ListFunctions"].map((method) => ({
    about: method,
    page: (cursor: string) => ({
      method: "POST",
      path: `/svc.v1.SvcService/${method}`,
      body: { limit: pageLimit, ...(cursor && { cursor }) },
    }),
  })),
];

async function walkLists(sides: readonly [Side, Side]) {
  const breaches: string[] = [];
  let attempts = 0;
  for (const { about, page } of lists) {
    let cursors: readonly (string | undefined)[] = ["", ""];
    for (let count = 0; cursors[0] !== undefined && count < pagesMax; count++) {
      attempts++;
      const [one, other] = await Promise.all([
        sides[0]({ about, ...page(cursors[0] ?? "") }),
        sides[1]({ about, ...page(cursors[1] ?? "") }),
      ]);
      if (one.status !== 200 || one.body !== other.body)
        breaches.push(
          `page ${count + 1} of ${about}: ${one.status} and ${other.status}: ${difference(one.body, other.body)}`,
        );
      cursors = [one.cursor, other.cursor];
    }
  }
  return { attempts, breaches };
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
  const attack = async (sides: readonly [Side, Side]) => {
    const scripted = await compare(calls(), sides);
    const walked = await walkLists(sides);
    return {
      attempts: scripted.attempts + walked.attempts,
      breaches: [...scripted.breaches, ...walked.breaches],
    };
  };
  if (options.sides) return attack(options.sides);
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
    return await attack([one!, other!]);
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
