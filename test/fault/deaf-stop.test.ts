import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { closeMsMax } from "../../src/kit/closing.ts";
import { type LivedTime, livedTime } from "../support/lived.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { sharedPostgres } from "../support/postgres.ts";
import { openProxy, type TcpProxy } from "../support/proxy.ts";
import { type Home, makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const drainMs = 1_000;
/** From the signal to the process's end, beside what the limits say. */
const slackMs = 2_000;

describe("SIGTERM for a node whose connections stay and say nothing any more", () => {
  let nats: NatsServer;
  let database: TcpProxy;
  let bus: TcpProxy;
  let home: Home;
  let databaseUrl: string;
  let dropDatabase: () => Promise<void>;
  let server: SpawnedServer;
  let time: LivedTime;

  beforeAll(async () => {
    const postgres = await sharedPostgres();
    databaseUrl = await postgres.createDatabase();
    dropDatabase = () => postgres.dropDatabase(databaseUrl);
    nats = await startNats();
    const behind = (url: string, { port }: TcpProxy) =>
      Object.assign(new URL(url), { hostname: "127.0.0.1", port: String(port) }).href;
    database = await openProxy(() => Number(new URL(databaseUrl).port || 5432));
    bus = await openProxy(() => Number(new URL(nats.url).port));
    home = await makeHomeAt(behind(databaseUrl, database));
    server = await spawnServer({
      engine: "postgres",
      nats: behind(nats.url, bus),
      home,
      settings: { drainMs },
    });
    time = await livedTime();
  }, 90_000);
  afterAll(async () => {
    await time?.stop();
    await server?.kill9();
    await Promise.all([database.stop(), bus.stop()]);
    await Promise.all([nats.stop(), dropDatabase(), home.remove()]);
  }, 120_000);

  test("it ends within its limits, although every statement and every tick hangs", async () => {
    const emit = () => server.rpc("SvcService", "Emit", { event: "a", data: {} });
    expect((await emit()).status).toBe(200);
    for (const { deaf } of [database, bus]) Object.assign(deaf, { up: true, down: true });
    const emits = Array.from({ length: 4 }, () =>
      emit().then(
        ({ status }) => status < 500,
        () => false,
      ),
    );
    // Loops tick every second or so: by now they hang.
    await Bun.sleep(1_500);
    const beganAt = time.now();
    await server.terminate();
    expect(time.now() - beganAt).toBeLessThan(drainMs + closeMsMax + slackMs);
    const said = await until(server.output, { about: "its last words" });
    expect(said).toContain("server.close_late");
    // Cut, or told that it cannot be: nobody is told that something is safe.
    expect(await Promise.all(emits)).toEqual(Array(4).fill(false));
  }, 120_000);
});
