import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdir, mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createClient } from "../../src/sdk/index.ts";
import { docsBlocks } from "../support/docs-blocks.ts";
import { findProgram, freePort, removeFolder } from "../support/process.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const root = resolve(import.meta.dir, "../..");
const signingKey = "k".repeat(40);
const packages = {
  ...{ express: "5.3.0", fastify: "5.12.8", hono: "4.13.19", "@hono/node-server": "2.1.9" },
  ...{ next: "16.4.6", react: "19.3.1", "react-dom": "19.3.1" },
};

/** What an HTTP API of AWS hands over for a request, and makes of the answer. */
const lambdaHost = `
import { createServer } from "node:http";
import { handler } from "./lambda.mjs";
createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const url = new URL(request.url, "http://host");
  const { statusCode, headers, body } = await handler({
    version: "2.0", rawPath: url.pathname, rawQueryString: url.search.slice(1), headers: request.headers,
    body: Buffer.concat(chunks).toString("base64"), isBase64Encoded: true,
    requestContext: { domainName: "example.com", http: { method: request.method } },
  });
  response.writeHead(statusCode, headers).end(body);
}).listen(Number(process.env.PORT));
`;

/** How each is started, by the path that its page says. */
const hosts: readonly [name: string, command: readonly string[]][] = [
  ["Hono", ["hono.mjs"]],
  ["Express", ["express.mjs"]],
  ["Fastify", ["fastify.mjs"]],
  ["AWS Lambda", ["lambda-host.mjs"]],
  ["Next.js", ["node_modules/next/dist/bin/next", "dev", "-p"]],
];

describe("handlers in the frameworks of the documentation", () => {
  let server: TestServer;
  let folder: string;
  const node = findProgram(["node"], "node");
  const environment = (): Record<string, string | undefined> => ({
    ...process.env,
    ...{ SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey, SVC_SIGNING_KEY: signingKey },
    NEXT_TELEMETRY_DISABLED: "1",
  });

  async function run(command: readonly string[], cwd = folder, env = environment()): Promise<void> {
    const child = Bun.spawn([...command], { cwd, env, stdout: "pipe", stderr: "pipe" });
    const said = await Promise.all([child.stdout, child.stderr].map((one) => new Response(one).text()));
    if ((await child.exited) !== 0) throw new Error(`${command.join(" ")}: ${said.join("")}`);
  }

  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql", settings: { pushAllowPrivate: "all", signingKey } });
    folder = await mkdtemp(join(tmpdir(), "svc-frameworks-"));
    await run([process.execPath, "run", "build:sdk"], root);
    await writeFile(join(folder, "package.json"), '{ "name": "own", "private": true, "type": "module" }');
    const wanted = Object.entries(packages).map(([name, version]) => `${name}@${version}`);
    const flags = ["--prefer-offline", "--install-links", "--no-audit", "--no-fund"];
    await run(["npm", "install", ...flags, ...wanted, join(root, "dist/sdk")]);
    await writeFile(join(folder, "lambda-host.mjs"), lambdaHost);
    for (const { page, language, text } of docsBlocks) {
      const file = /^\/\/ (\S+\.m?js)\n/.exec(text)?.[1];
      if (page !== "frameworks" || language !== "js" || file === undefined) continue;
      await mkdir(dirname(join(folder, file)), { recursive: true });
      await writeFile(join(folder, file), text);
    }
    // Next.js wants a page beside its routes.
    await writeFile(
      join(folder, "app/layout.js"),
      "export default ({ children }) => <html lang='en'><body>{children}</body></html>;\n",
    );
  }, 300_000);
  afterAll(async () => {
    await server?.stop();
    await removeFolder(folder);
  });

  test.each(hosts)(
    "%s answers the server, and its run completes",
    async (_, command) => {
      const port = await freePort();
      const asked = command.length > 1 ? [...command, String(port)] : command;
      const env = { ...environment(), PORT: String(port) };
      const host = Bun.spawn([node, ...asked], { cwd: folder, env, stdout: "ignore", stderr: "ignore" });
      try {
        const endpoint = `http://127.0.0.1:${port}/api/svc`;
        const isThere = () =>
          fetch(endpoint, { method: "POST", body: "{}" }).then(({ status }) => status === 401);
        await until(() => isThere().catch(() => false), { about: "the framework to listen" });
        await run([node, "register.mjs"], folder, { ...env, ENDPOINT_URL: endpoint });
        const client = createClient({ url: server.url, apiKey: server.adminKey });
        const { runIds } = await client.emit("user.joined", { name: "Ada" });
        expect(await client.waitForRun(runIds[0]!, { timeoutMs: 60_000 })).toMatchObject({
          ...{ status: "completed", output: "Hello Ada" },
        });
      } finally {
        host.kill();
        await host.exited;
      }
    },
    120_000,
  );

  test("a worker in a process of its own completes a run, and says goodbye when it is stopped", async () => {
    const worker = Bun.spawn([node, "worker.mjs"], { cwd: folder, env: environment(), stdout: "ignore" });
    const client = createClient({ url: server.url, apiKey: server.adminKey });
    const listed = async () => (await server.api("/api/v1/workers")).body.workers as unknown[];
    await until(async () => (await listed()).length === 1, { about: "the worker" });
    const { runIds } = await client.emit("user.joined", { name: "Bo" });
    expect((await client.waitForRun(runIds[0]!, { timeoutMs: 60_000 })).output).toBe("Hello Bo");
    worker.kill("SIGTERM");
    await worker.exited;
    expect(await listed()).toEqual([]);
  }, 120_000);
});
