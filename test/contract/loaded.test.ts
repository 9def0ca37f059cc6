import { expect, test } from "bun:test";
import { join, resolve } from "node:path";
import { runOnce } from "../support/one-run.ts";
import { freePort } from "../support/process.ts";
import { type EngineName, engines, makeHome, spawnServer } from "../support/server.ts";

const root = resolve(import.meta.dir, "../..");

/** What a server loads for whoever first asks for it, or never: how the names of files begin. */
const forFirstUse = [
  "node_modules/@bufbuild/re2/",
  "node_modules/@connectrpc/",
  "node_modules/@marcbachmann/cel-js/",
  "node_modules/@modelcontextprotocol/",
  "node_modules/@nats-io/",
  "node_modules/@opentelemetry/",
  "node_modules/commander/",
  "node_modules/jose/",
  "node_modules/libpg-query/",
  "node_modules/marked/",
  "node_modules/prom-client/",
  "node_modules/swagger-ui-dist/",
  "src/cli/commands/",
  "src/cli/mcp/",
  "src/dashboard/",
  "src/docs/",
  "src/edge/grpc-connect.ts",
  "src/edge/metrics.ts",
  "src/edge/openapi",
  "src/edge/rpc-connect.ts",
  "src/edge/traces.ts",
  "src/gen/svc/v1/comments.ts",
  "src/sdk/",
];
const driverOf: Record<EngineName, string> = {
  libsql: "node_modules/libsql/",
  postgres: "node_modules/postgres/",
};

test.each(engines)(
  "a start on %s and its first run load nothing for those who did not ask yet",
  async (engine) => {
    const home = await makeHome(engine);
    const file = join(home.folder, "loaded.json");
    const server = await spawnServer({
      ...{ engine, home, settings: { grpcPort: await freePort() } },
      command: ["env", `LOADED_MODULES_FILE=${file}`],
      program: [
        ...[process.execPath, "--preload", join(root, "test/support/loaded-modules.ts")],
        join(root, "src/main.ts"),
      ],
    });
    try {
      expect((await runOnce(server, "first")).answer.status).toBe(200);
      expect(await server.terminate()).toBe(0);
      const files: string[] = await Bun.file(file).json();
      const loaded = files.map((name) => name.slice(root.length + 1));
      const of = (names: readonly string[]) =>
        names.filter((name) => loaded.some((one) => one.startsWith(name)));

      const drivers = Object.values(driverOf);
      // What is not seen at all proves nothing.
      expect(of([driverOf[engine], "src/server.ts", "node_modules/elysia/"])).toHaveLength(3);
      expect(of([...forFirstUse, ...drivers])).toEqual([driverOf[engine]]);
    } finally {
      await server.stop();
      await home.remove();
    }
  },
  90_000,
);
