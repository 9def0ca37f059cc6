import { join, resolve } from "node:path";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import { plugin } from "bun";

// A program of its own: both generators ask for `typescript` as a library, which version 7 is not.
// `bun test/support/api-clients.ts openapi.json folder` writes clients there and prints what the linter says.

plugin({
  name: "typescript as a library",
  setup(build) {
    build.module("typescript", async () => {
      const { default: exports } = await import("typescript-api");
      return { loader: "object", exports: { ...exports, default: exports } };
    });
  },
});

const [documentPath = "", folder = ""] = Bun.argv.slice(2).map((path) => resolve(path));
const source = await Bun.file(documentPath).text();

const { default: openapiTypes, astToString } = await import("openapi-typescript");
await Bun.write(join(folder, "api.d.ts"), astToString(await openapiTypes(JSON.parse(source))));

const { createClient } = await import("@hey-api/openapi-ts");
await createClient({
  input: JSON.parse(source),
  output: { path: join(folder, "sdk") },
  logs: { level: "silent" },
  plugins: ["@hey-api/typescript", "@hey-api/sdk", "@hey-api/client-fetch"],
});

const config = await createConfig({ extends: ["recommended"] });
const problems = await lintFromString({ source, absoluteRef: documentPath, config });
console.log(
  JSON.stringify(
    problems.map(({ ruleId, message, location: [place] }) => `${ruleId} ${place?.pointer}: ${message}`),
  ),
);
