import { afterEach, expect, test } from "bun:test";
import { createClient } from "../../src/sdk/index.ts";
import { until } from "../support/until.ts";

let server: { stop(force: boolean): Promise<void> } | undefined;
afterEach(() => server?.stop(true));

/** A server with one stream of so many events; `refuses` answers what it has against a page. */
function started(
  total: number,
  refuses: (from: number, limit: number) => Response | undefined = () => undefined,
) {
  const asked: number[] = [];
  const made = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const { fromVersion, limit } = (await request.json()) as { fromVersion: number; limit: number };
      const from = Math.max(1, fromVersion);
      asked.push(from);
      const refused = refuses(from, limit);
      if (refused) return refused;
      const last = Math.min(total, from + limit - 1);
      const events = Array.from({ length: last - from + 1 }, (_, at) => ({ entityVersion: `${from + at}` }));
      return Response.json({
        events,
        totalCount: total,
        ...(last < total && { nextVersion: `${last + 1}` }),
      });
    },
  });
  server = made;
  return { asked, streams: createClient({ url: made.url.origin, apiKey: "ifkey_test" }).streams };
}

const versions = async (events: AsyncIterable<{ version: number }>, most = Number.POSITIVE_INFINITY) => {
  const seen: number[] = [];
  for await (const { version } of events) if (seen.push(version) >= most) break;
  return seen;
};
const upTo = (count: number) => Array.from({ length: count }, (_, at) => at + 1);

test("a long stream is read whole, in order, and the next page is on its way from the second on", async () => {
  const { asked, streams } = started(4_500);
  const reading = streams.read("long");
  for (let version = 1; version <= 1_001; version++)
    expect((await reading.next()).value?.version).toBe(version);
  await until(() => asked.length === 3, { about: "the third page to be asked for" });
  expect(await versions(reading)).toEqual(upTo(4_500).slice(1_001));
  expect(asked).toEqual([1, 1_001, 2_001, 3_001, 4_001]);
});

test("who needs one page asks for one, and a limit holds", async () => {
  const { asked, streams } = started(4_500);
  expect(await versions(streams.read("long"), 1_000)).toEqual(upTo(1_000));
  expect(asked).toEqual([1]);
  expect(await versions(streams.read("long", { limit: 2_500 }))).toEqual(upTo(2_500));
  expect(asked).toEqual([1, 1, 1_001, 2_001]);
});

test("pages that are too large are asked for in smaller ones, also ahead", async () => {
  const tooLarge = (from: number, limit: number) =>
    from > 1_500 && limit > 250
      ? Response.json({ code: "failed_precondition", message: "too large" }, { status: 400 })
      : undefined;
  const { streams } = started(4_500, tooLarge);
  expect(await versions(streams.read("long"))).toEqual(upTo(4_500));
});

test("a page ahead that fails is an error when its turn comes, and none for who left before", async () => {
  const gone = (from: number) =>
    from > 2_000 ? Response.json({ code: "permission_denied", message: "no" }, { status: 403 }) : undefined;
  const { asked, streams } = started(4_500, gone);
  const seen: number[] = [];
  const reading = (async () => {
    for await (const { version } of streams.read("long")) seen.push(version);
  })();
  await expect(reading).rejects.toMatchObject({ code: "permission_denied" });
  expect(seen).toEqual(upTo(2_000));
  expect(await versions(streams.read("long"), 1_500)).toEqual(upTo(1_500));
  await until(() => asked.filter((from) => from === 2_001).length >= 2, { about: "the page ahead" });
});
