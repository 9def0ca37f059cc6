import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { plant } from "../support/plant.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const runsMax = 10_000;
const planted = 12_050;

interface RunsAnswer {
  runs?: { id: string; functionId: string }[];
  nextCursor?: string;
  totalCount?: number;
  totalCountCapped?: boolean;
  truncated?: boolean;
  scanned?: number;
}

// The newest 10,000 runs and events are of one function and of one name: what is older is found by an index, or page by page.
describe.each(engines)("lists of more than is looked at on %s", (engine) => {
  let server: TestServer;
  const old = "run_01kaa0000000000000000000";
  const idOf = (number: number) => `run_01kaa${`${number}`.padStart(21, "0")}`;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const { store } = server.running.domain;
    const text = (value: string) => `CAST(${value} AS TEXT)`;
    const number = (prefix: string, digits: number) =>
      `'${prefix}' || substr('${"0".repeat(digits)}' || ${text("n")}, -${digits})`;
    const padded = (prefix: string, digits: number) =>
      engine === "postgres" ? `'${prefix}' || lpad(${text("n")}, ${digits}, '0')` : number(prefix, digits);
    await plant(store, "events", planted, {
      ...{ environment_id: "'env_default'", position: "1000000 + n", id: padded("evt_01kaa", 21) },
      ...{ name: "CASE WHEN n <= 3 THEN 'rare.event' ELSE 'busy.event' END", version: "1", data: "'{}'" },
      ...{ source: "CASE WHEN n <= 3 THEN 'cron' ELSE 'api' END", at: "1000 + n" },
    });
    await plant(store, "runs", planted, {
      ...{ environment_id: "'env_default'", id: padded("run_01kaa", 21), function_version: "1" },
      function_id: "CASE WHEN n <= 3 THEN 'rare-one' WHEN n <= 5 THEN 'gone' ELSE 'busy' END",
      event_name: "CASE WHEN n <= 8 THEN 'rare.event' ELSE 'busy.event' END",
      event_id: padded("evt_01kaa", 21),
      ...{ mode: "'pull'", status: "CASE WHEN n = 4 THEN 'failed' ELSE 'completed' END" },
      ...{ trouble: "CASE WHEN n = 4 THEN 'failed' END", attempt: "1", max_attempts: "3" },
      ...{ created_at: "1000 + n", updated_at: "1000 + n", execution_seq: "1" },
    });
    const { status } = await server.rpc("SvcService", "RegisterFunction", {
      ...{ id: "rare-one", triggers: [{ event: "never.comes" }] },
    });
    expect(status).toBe(200);
  }, 120_000);
  afterAll(() => server?.stop());

  const runs = async (body: object): Promise<RunsAnswer> => {
    const answer = await server.rpc("SvcService", "ListRuns", body);
    expect(answer.status).toBe(200);
    return answer.body;
  };
  const numbers = ({ runs: found = [] }: RunsAnswer) => found.map(({ id }) => Number(id.slice(10)));

  /** What all pages hold, and the pages. */
  async function all(filter: object): Promise<{ found: number[]; pages: RunsAnswer[] }> {
    const pages: RunsAnswer[] = [await runs({ ...filter, limit: 2 })];
    for (let next = pages[0]!.nextCursor; next; next = pages.at(-1)!.nextCursor)
      pages.push(await runs({ ...filter, limit: 2, cursor: next }));
    return { found: pages.flatMap(numbers), pages };
  }

  test("a search looks at so many runs, says so, and goes on by its cursor", async () => {
    const [first, second, ...rest] = (await all({ search: "no such run" })).pages;
    expect(first).toMatchObject({ truncated: true, scanned: runsMax, totalCountCapped: true });
    expect(first!.runs ?? []).toEqual([]);
    expect(second).not.toHaveProperty("truncated");
    expect(rest).toEqual([]);
    expect(await runs({ search: "busy", limit: 1, offset: 5 })).toMatchObject({
      ...{ totalCount: runsMax, totalCountCapped: true, runs: [{ id: idOf(planted - 5) }] },
    });
  });

  test("runs of a function whose id holds the text come at once, and each run once", async () => {
    const { found, pages } = await all({ search: "RARE" });
    expect(numbers(pages[0]!)).toEqual([3, 2]);
    expect(found).toEqual([3, 2, 1, 8, 7, 6, 5, 4]);
    expect((await all({ search: "rare", functionId: "busy" })).found).toEqual([8, 7, 6]);
    const answer = await server.rpc("SvcService", "ListRuns", { search: "rare", cursor: "b3RoZXJzIDE" });
    expect(answer).toMatchObject({ status: 400, body: { message: expect.stringContaining("cursor") } });
  });

  test("ids, the beginning of one, statuses and events are found by an index", async () => {
    const whole = { totalCount: 1 };
    for (const filter of [
      { search: idOf(1).toUpperCase() },
      { search: idOf(1).replace("run_", "evt_") },
      { eventId: idOf(1).replace("run_", "evt_"), statuses: ["completed"] },
    ]) {
      const answer = await runs(filter);
      expect(numbers(answer)).toEqual([1]);
      expect(answer).toMatchObject(whole);
      expect(answer).not.toHaveProperty("totalCountCapped");
    }
    expect(numbers(await runs({ search: `${old}00000`.slice(0, 29) }))).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1]);
    expect(numbers(await runs({ statuses: ["failed", "running"] }))).toEqual([4]);
    expect(numbers(await runs({ statuses: ["failed"], functionId: "gone" }))).toEqual([4]);
    expect(await runs({ functionId: "busy", statuses: ["failed"] })).toEqual({});
    // Many match the beginning: the page is full, the list goes on.
    expect(await runs({ search: "run_01kaa00", limit: 1 })).toMatchObject({ runs: [{ id: idOf(planted) }] });
  });

  const events = async (query: string) => {
    const { status, body } = await server.api(`/api/v1/events?limit=2&${query}`);
    expect(status).toBe(200);
    return body;
  };

  test("events of a name are found by it, others page by page", async () => {
    expect(await events("name=nothing")).toMatchObject({
      ...{ events: [], has_next: false, truncated: false, approx_total: 0, approx_total_capped: false },
    });
    const rare = await events("name=ARE.ev");
    expect(rare.events.map(({ name }: { name: string }) => name)).toEqual(["rare.event", "rare.event"]);
    expect(rare).toMatchObject({
      has_next: true,
      approx_total: 3,
      approx_total_capped: false,
      truncated: false,
    });
    const last = await events(`name=ARE.ev&cursor=${rare.next_cursor}`);
    expect(last).toMatchObject({ count: 1, has_next: false, has_prev: true });
    const cron = await events("source=cron");
    expect(cron).toMatchObject({ events: [], truncated: true, scanned: runsMax, has_next: true });
    const found = await events(`source=cron&cursor=${cron.next_cursor}`);
    expect(found).toMatchObject({ count: 2, truncated: false, has_next: true });
    expect((await events(`source=cron&before=${found.prev_cursor ?? found.next_cursor}`)).count).toBe(0);
    const id = idOf(2).replace("run_", "evt_");
    expect((await events(`search=${id}`)).events).toMatchObject([{ id }]);
  });
});
