// An event store of a library on PostgreSQL: appends to streams, and reads of one.
import { getPostgreSQLEventStore } from "@event-driven-io/emmett-postgresql";
import { callers, note, tell } from "./load.mjs";

const { databaseUrl, scenario, seconds } = JSON.parse(process.argv[2]);
const store = getPostgreSQLEventStore(databaseUrl);
const event = { type: "placed", data: { customer: "c-1042", total: 42.5, note } };
const of = (count) => Array.from({ length: count }, () => event);
const mark = `${process.pid}-${Math.floor(performance.timeOrigin)}`;
const streams = 10_000;
const readEvents = 1_000;

const scenarios = {
  appends() {
    const versions = new Map();
    let made = 0;
    return callers(64, seconds, async () => {
      const name = `${mark}-${made++ % streams}`;
      const expectedStreamVersion = versions.get(name) ?? "STREAM_DOES_NOT_EXIST";
      const { nextExpectedStreamVersion } = await store.appendToStream(name, of(1), {
        expectedStreamVersion,
      });
      versions.set(name, nextExpectedStreamVersion);
    });
  },
  async batches() {
    let made = 0;
    const { perS, count, ...times } = await callers(8, seconds, () =>
      store.appendToStream(`${mark}-batch-${made++}`, of(100)),
    );
    return { perS: perS * 100, count: count * 100, ...times };
  },
  async reads() {
    for (let at = 0; at < readEvents; at += 100) await store.appendToStream(`${mark}-read`, of(100));
    const { perS, count, ...times } = await callers(1, seconds, async () => {
      const { events } = await store.readStream(`${mark}-read`);
      if (events.length !== readEvents) throw new Error(`${events.length} events were read`);
    });
    return { perS: perS * readEvents, count: count * readEvents, ...times };
  },
};

tell(await scenarios[scenario]());
process.exit(0);
