import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdir, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { inChrome } from "../support/chrome.ts";
import { freePort, type RunningProgram, removeFolder, run, startProgram } from "../support/process.ts";
import { until } from "../support/until.ts";
import { visit } from "./visit.ts";

const root = resolve(import.meta.dir, "../..");
const commitsTold = 30;

describe("the executable, from an empty folder", () => {
  let folder: string;
  let url: string;
  let server: RunningProgram;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "svc-executable-"));
    await mkdir(join(folder, "data"));
    await run([process.execPath, join(root, "src/build/binary.ts"), join(folder, "svc")]);
    const port = `${await freePort()}`;
    url = `http://127.0.0.1:${port}`;
    const variables = ["PATH=/usr/bin:/bin", `HOME=${folder}`, "SVC_GRPC_PORT=0", "SVC_LEASE_MS=3000"];
    server = startProgram(
      ["env", "-i", ...variables, join(folder, "svc"), "serve", "--dev", "--port", port],
      join(folder, "data"),
    );
    await until(async () => ((await fetch(`${url}/ready`).catch(() => undefined))?.ok ? true : undefined), {
      ...{ about: "the server to be ready", deadlineMs: 20_000 },
    });
  }, 120_000);
  afterAll(async () => {
    server?.signal("SIGTERM");
    await server?.exited;
    server?.release();
    await removeFolder(folder);
  });

  test("carries the demo: a worker is killed, and every commit is handled once", async () => {
    const demo = [join(root, "src/demo/main.ts"), "--limit", `${commitsTold}`];
    const child = Bun.spawn([process.execPath, ...demo], {
      env: { PATH: process.env.PATH ?? "", HOME: folder, SVC_SERVER_URL: url },
      stdout: "pipe",
      stderr: "pipe",
    });
    const [out, errors] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    expect([await child.exited, errors]).toEqual([0, ""]);
    expect(out).toContain(`It adds up: ${commitsTold} commits, ${commitsTold} completed runs`);
  }, 120_000);

  test("shows every page of the dashboard and of the documentation to Chromium", async () => {
    await inChrome(
      async (browser) => {
        const { page, complaints } = await visit(browser, { url, env: "env_default" }, { path: "overview" });
        const refused: string[] = [];
        page.on("response", (response) => {
          if (response.status() >= 400) refused.push(`${response.status()} ${response.url()}`);
        });
        const navigation = page.locator("nav[aria-label=Pages] a");
        const offered = async () => {
          await navigation.first().waitFor();
          const all = await navigation.evaluateAll((links) =>
            links.map((one) => (one as HTMLAnchorElement).href.replace(/#.*$/, "")),
          );
          return [...new Set(all)].filter((link) => link.startsWith(url));
        };
        const shown = async (link: string) => {
          await page.goto(link);
          await page.getByRole("heading", { level: 1 }).first().waitFor();
        };
        const pages = await offered();
        expect(pages.length).toBeGreaterThan(20);
        for (const link of pages) {
          await shown(link);
          await page.locator("main[aria-busy=false]").waitFor();
        }
        const listed = await fetch(`${url}/svc.v1.SvcService/ListRuns`, {
          ...{ method: "POST", body: '{"limit":1}', headers: { "content-type": "application/json" } },
        });
        const { runs } = (await listed.json()) as { runs: { id: string }[] };
        await shown(`${url}/dashboard/org_default/env_default/runs/${runs[0]!.id}`);
        await page.locator("main[aria-busy=false]").waitFor();

        await shown(`${url}/docs`);
        const documents = await offered();
        expect(documents.length).toBeGreaterThan(20);
        for (const link of documents) await shown(link);
        expect([complaints, refused]).toEqual([[], []]);
      },
      { patienceMs: 240_000 },
    );
  }, 300_000);
});
