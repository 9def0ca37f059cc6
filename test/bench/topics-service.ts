/**
 * Messages a second that the topics service itself stores for callers in its own process: everything of a publish but
 * HTTP. Prints one JSON line.
 */
import { tenancy as openTenancy } from "../../src/domain/access/tenancy/service.ts";
import { draftOf } from "../../src/domain/log/topics/rules.ts";
import { openTopics } from "../../src/domain/log/topics/service.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import { noWatch } from "../../src/kit/watch.ts";
import { openStore } from "../../src/store/open.ts";

const { databaseUrl, file, seconds, callers, batch } = JSON.parse(process.argv[2]!) as {
  databaseUrl?: string;
  file?: string;
  seconds: number;
  callers: number;
  batch: number;
};
const warmMs = 1_000;
const clock = systemClock();
const ids = systemIds(clock);
const store = await openStore({ databaseUrl, file, clock, log: silentLog, poolSize: 2, hotPoolSize: 2 });
const tenancy = openTenancy({ store, clock, ids, log: silentLog, strictEnvironment: false });
await tenancy.createDefaults();
const topics = openTopics({
  store,
  clock,
  ids,
  feeds: { wanted: () => false, committed: () => {} },
  watch: noWatch,
  consumersOf: async () => () => [],
  requireRoom: async () => {},
});

const publish = () => {
  const data = { at: performance.now(), customer: "c-1042", total: 42.5, note: "bench" };
  const drafts = Array.from({ length: batch }, () => draftOf({ topic: "bench", data }, undefined));
  return topics.publish(drafts, { environmentId: "env_default" });
};

let stored = 0;
const countAt = performance.now() + warmMs;
const endAt = countAt + seconds * 1000;
await Promise.all(
  Array.from({ length: callers }, async () => {
    while (performance.now() < endAt) {
      await publish();
      const now = performance.now();
      if (now >= countAt && now < endAt) stored += batch;
    }
  }),
);
await store.close();
process.stdout.write(`${JSON.stringify({ perS: stored / seconds })}\n`);
process.exit(0);
