import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { cpSync, existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { rawCommands } from "../../src/cli/raw-commands.ts";
import { groups } from "../../src/docs/list.ts";
import { render } from "../../src/docs/render.ts";
import { buildDocs } from "../../src/docs/site.ts";
import { faultCatalogue, restForm } from "../../src/edge/fault-encoding.ts";
import { Fault, type FaultKind } from "../../src/kit/fault.ts";
import { breachesOf } from "../support/axe.ts";
import { inChrome } from "../support/chrome.ts";
import { makeCli } from "../support/cli.ts";
import { docsFolder, freshDocs } from "../support/docs.ts";
import { type DocsBlock, docsBlocks, docsCommands } from "../support/docs-blocks.ts";
import { drives } from "../support/docs-drives.ts";
import { faultPages, type ShownCall } from "../support/fault-pages.ts";
import { isNight } from "../support/night.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

const root = join(import.meta.dir, "../..");

/** What a program says that it prints: `// prints …` behind its lines. */
const promised = ({ text }: DocsBlock): string[] =>
  [...text.matchAll(/\/\/ prints (.*)$/gm)].map((match) => match[1]!);

/** `…` stands for any text. */
function like(text: string): unknown {
  if (!text.includes("…")) return text;
  const parts = text.split("…").map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return expect.stringMatching(new RegExp(`^${parts.join(".+")}$`));
}

describe("the documentation", () => {
  let server: TestServer;
  let folder = "";
  const files = docsBlocks
    .filter(({ language }) => language === "ts")
    .map((block, at) => ({ ...block, file: `${block.page}-${at}.ts` }));
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
    folder = await mkdtemp(join(tmpdir(), "svc-docs-"));
    for (const { file, text } of files) await Bun.write(join(folder, file), `${text}\nexport {};\n`);
    const config = {
      extends: join(root, "tsconfig.json"),
      compilerOptions: {
        paths: { svc: [join(root, "src/sdk/index.ts")], "svc/client": [join(root, "src/sdk/browser.ts")] },
        typeRoots: [join(root, "node_modules/@types")],
      },
      include: ["*.ts"],
    };
    await Bun.write(join(folder, "tsconfig.json"), JSON.stringify(config));
  });
  afterAll(async () => {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test("its code type-checks against the SDK", async () => {
    const checked = Bun.spawn([join(root, "node_modules/.bin/tsc"), "-p", folder], { stdout: "pipe" });
    expect(await new Response(checked.stdout).text()).toBe("");
    expect(files.length).toBeGreaterThan(4);
  }, 120_000);

  /** A program of the folder, which finds the server by its environment. */
  async function ran(file: string) {
    const env = { ...process.env, SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey ?? "" };
    const program = Bun.spawn(["bun", "run", file], { cwd: folder, env, stdout: "pipe", stderr: "pipe" });
    const [printed, troubles] = await Promise.all([
      new Response(program.stdout).text(),
      new Response(program.stderr).text(),
      program.exited,
    ]);
    return { code: program.exitCode, printed: printed.replaceAll(/\s+/g, " ").trim(), troubles };
  }

  test("its programs print what they say", async () => {
    const wrong = await Promise.all(
      files
        .filter(({ isProgram }) => isProgram)
        .map(async (block) => {
          const { code, printed, troubles } = await ran(block.file);
          const missed = promised(block).filter((line) => !printed.includes(line));
          const isGood = code === 0 && promised(block).length > 0 && missed.length === 0;
          return isGood ? [] : [{ file: block.file, printed, troubles, missed }];
        }),
    );
    expect(wrong.flat()).toEqual([]);
  }, 120_000);

  test("what it shows without a call runs when it is called", async () => {
    const wrong: unknown[] = [];
    for (const [page, ofPage] of Map.groupBy(
      files.filter(({ isProgram }) => !isProgram),
      (block) => block.page,
    )) {
      expect([page, drives[page]?.length]).toEqual([page, ofPage.length]);
      for (const [at, { replaces, adds, prints }] of drives[page]!.entries()) {
        const { text, file } = ofPage[at]!;
        const real = replaces ? text.replace(...replaces) : text;
        const driven = join("driven", file);
        await Bun.write(join(folder, driven), `${real}\n${adds}\nexport {};\n`);
        const { code, printed, troubles } = await ran(driven);
        if (code !== 0 || !prints.test(printed)) wrong.push({ file, printed, troubles });
      }
    }
    expect(wrong).toEqual([]);
  }, 120_000);

  test("its commands exist, with the flags that they are given", async () => {
    const cli = makeCli(
      {},
      { rawCommands: { serve: { about: "", open: () => Promise.resolve(0) }, ...rawCommands } },
    );
    expect(docsCommands.length).toBeGreaterThan(10);
    const wrong: string[] = [];
    const helps = new Map<string, string>();
    for (const { page, line } of docsCommands) {
      const bare = line.replaceAll(/'[^']*'|"[^"]*"/g, "VALUE");
      const words = bare.split(/\s+/).slice(1);
      const until = words.findIndex((word) => /^-|[A-Z_/.:0-9]/.test(word));
      const command = (until < 0 ? words : words.slice(0, until)).join(" ");
      if (!helps.has(command)) {
        const { code, out, err } = await cli.run([...command.split(" "), "--help"]);
        helps.set(command, code === 0 ? out + err : "");
      }
      const help = helps.get(command)!;
      // These read their words themselves, so that their help is a text of their own.
      if (command in rawCommands || command === "serve" || command === "dev") continue;
      if (!help.includes("Usage: svc")) wrong.push(`${page}: svc ${command} is no command`);
      for (const flag of words.filter((word) => word.startsWith("--")))
        if (!help.includes(flag)) wrong.push(`${page}: svc ${command} has no ${flag}`);
    }
    cli.remove();
    expect(wrong).toEqual([]);
  }, 120_000);

  test("its generated parts are as the code has them (`bun run refresh` writes them)", async () => {
    for (const [name, text] of await freshDocs())
      expect(await Bun.file(join(docsFolder, name)).text()).toBe(text);
  });

  test("each kind of error is answered as its section shows it", async () => {
    const made = { name: "reader", role_ids: ["role_viewer"] };
    const { key: reader } = (await server.api("/api/v1/apikeys", { body: made })).body;
    const ask = async ({ route, headers = {}, body }: ShownCall, key: string | undefined) => {
      const [method = "", path = ""] = route.replace("{environment}", server.env).split(" ");
      const isText = typeof body === "string";
      const answer = await fetch(server.url + path, {
        method,
        headers: {
          ...(key !== undefined && { Authorization: `Bearer ${key}` }),
          ...(body !== undefined && !isText && { "Content-Type": "application/json" }),
          ...headers,
        },
        ...(body !== undefined && { body: isText ? body : JSON.stringify(body) }),
      });
      return { status: answer.status, body: answer.status === 204 ? undefined : await answer.json() };
    };
    const keys = { nobody: undefined, viewer: reader as string };
    const told: [kind: string, shown: unknown][] = [];
    const found: [kind: string, answered: unknown][] = [];
    for (const { code, status, connect_status: connectStatus } of faultCatalogue) {
      const { before = [], after = [], call, as, answer } = faultPages[code as FaultKind];
      const body = Object.fromEntries(Object.entries(answer).map(([name, text]) => [name, like(text)]));
      told.push([code, { status: call?.route.includes("/svc.v1.") ? connectStatus : status, body }]);
      for (const one of before) expect((await ask(one, server.adminKey)).status, one.route).toBeLessThan(300);
      const kind = code as FaultKind;
      const { status: unasked, body: form } = restForm(
        new Fault(kind, answer.message!.replace("…", "req_1")),
      );
      found.push([
        code,
        call ? await ask(call, as ? keys[as] : server.adminKey) : { status: unasked, body: form },
      ]);
      for (const one of after) await ask(one, server.adminKey);
    }
    expect(found).toEqual(told as never);
  }, 120_000);

  test("each code that programs compare stands on the page of errors", async () => {
    const page = await Bun.file(join(docsFolder, "errors.md")).text();
    const codes = new Set<string>();
    for (const path of new Bun.Glob("{domain,sdk,kit}/**/*.ts").scanSync({ cwd: join(root, "src") }))
      for (const [, code] of (await Bun.file(join(root, "src", path)).text()).matchAll(
        /(?:code: |code \?\? |Fault\(\d+, |UnsentJob\(\s*|refusal\(\s*|Refusal\(\d+, )"([A-Z]+_[A-Z_]+)"/g,
      ))
        codes.add(code!);
    expect(codes.size).toBeGreaterThan(40);
    expect([...codes].filter((code) => !page.includes(`\`${code}\``)).sort()).toEqual([]);
  });

  test("no link is dead, every page is reached, and all comes from this server", async () => {
    const { pages } = await buildDocs();
    const reached = new Set<string>();
    const dead: string[] = [];
    const ids = new Map([...pages].map(([name, html]) => [name, html]));
    for (const [name, html] of pages)
      for (const [, href] of html.matchAll(/ href="([^"]*)"/g)) {
        const [path = "", anchor] = href!.split("#");
        const target = path === "" ? name : /^\/docs(?:\/([\w-]+))?$/.exec(path)?.[1];
        const isElsewhere = /^(data:|https?:|\/dashboard$|\/docs\/(api$|assets\/))/.test(path);
        if (isElsewhere) continue;
        const page = ids.get(path === "/docs" ? "" : (target ?? "?"));
        if (page === undefined || (anchor && !page.includes(`id="${anchor}"`))) dead.push(`${name}: ${href}`);
        if (name === "") reached.add(target ?? "");
      }
    expect(dead).toEqual([]);
    expect([...pages.keys()].filter((name) => name !== "" && !reached.has(name))).toEqual([]);
    for (const [name, html] of pages) {
      const first = /<link rel="stylesheet" href="([^"]*)">\n<script type="module" src="([^"]*)"/.exec(html)!;
      if (name !== "") continue;
      for (const path of ["/docs", ...first.slice(1), /data-index="([^"]*)"/.exec(html)![1]!]) {
        const { status, headers } = await fetch(`${server.url}${path}`);
        expect([path, status]).toEqual([path, 200]);
        expect(headers.get("content-security-policy")).toStartWith("default-src 'none'; script-src 'self'");
      }
      expect((await fetch(`${server.url}/docs/nowhere`)).status).toBe(404);
      expect(await (await fetch(`${server.url}/docs/api`)).text()).toContain('href="/docs"');
    }
  });

  test("no link of any page of the tree is dead, nor its anchor", async () => {
    const paths = ["*.md", "{cluster,proto,src,test}/**/*.md"].flatMap((form) => [
      ...new Bun.Glob(form).scanSync({ cwd: root }),
    ]);
    const pages = new Map<string, { targets: string[]; ids: Set<string> }>();
    for (const path of paths) {
      const targets: string[] = [];
      const { sections } = render(await Bun.file(join(root, path)).text(), (target) => {
        targets.push(target);
        return target;
      });
      pages.set(path, { targets, ids: new Set(sections.map(({ id }) => id)) });
    }
    const isDead = (path: string, target: string): boolean => {
      if (/^(https?:|\/)/.test(target)) return false;
      const [file = "", anchor] = target.split("#");
      const to = file === "" ? path : join(dirname(path), file);
      return anchor === undefined ? !existsSync(join(root, to)) : !pages.get(to)?.ids.has(anchor);
    };
    const dead = [...pages].flatMap(([path, { targets }]) =>
      targets.filter((target) => isDead(path, target)).map((target) => `${path}: ${target}`),
    );
    expect(dead).toEqual([]);
    expect(pages.size).toBeGreaterThan(50);
  });

  test("stands in a copy of the sources alone", async () => {
    const copy = join(folder, "copy");
    cpSync(join(root, "src"), join(copy, "src"), { recursive: true });
    for (const name of ["node_modules/marked", "node_modules/minisearch"])
      cpSync(join(root, name), join(copy, name), { recursive: true });
    const alone = Bun.spawn(
      [
        "bun",
        "-e",
        `const { buildDocs } = await import("./src/docs/site.ts");
        const { pages } = await buildDocs(); console.log([...pages].length, [...pages].join("").includes("/docs/runbook"));`,
      ],
      { cwd: copy, stdout: "pipe" },
    );
    const there = groups.flatMap(({ pages }) => pages).filter(({ file }) => !file.startsWith("../"));
    expect(await new Response(alone.stdout).text()).toBe(`${there.length + 1} false\n`);
    expect(existsSync(join(copy, "cluster"))).toBe(false);
  }, 120_000);

  test("for everyone: by keyboard, in the dark, on a phone", async () => {
    await inChrome(async (browser) => {
      const troubles: string[] = [];
      for (const colorScheme of ["light", "dark"] as const) {
        const context = await browser.newContext({ colorScheme, viewport: { width: 390, height: 844 } });
        const page = await context.newPage();
        page.on("pageerror", (error) => troubles.push(String(error)));
        page.on("console", (message) => {
          if (message.type() === "error") troubles.push(message.text());
        });
        for (const name of isNight ? ["errors", "start"] : [colorScheme === "light" ? "errors" : "start"]) {
          await page.goto(`${server.url}/docs/${name}`);
          troubles.push(...(await breachesOf(page)).map((breach) => `${name} ${colorScheme}: ${breach}`));
          const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          if (over > 0) troubles.push(`${name}: ${over} pixels wider than the window`);
        }
        await page.keyboard.press("/");
        await page.keyboard.type("not_found");
        await page.getByRole("option").first().waitFor();
        troubles.push(...(await breachesOf(page)).map((breach) => `search ${colorScheme}: ${breach}`));
        await page.keyboard.press("ArrowDown");
        await page.keyboard.press("Enter");
        await page.waitForURL(/\/docs\/errors#/);
        await context.close();
      }
      expect(troubles).toEqual([]);
    });
  }, 120_000);
});
