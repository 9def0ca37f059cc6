import { join } from "node:path";
import type { DashboardFile } from "../edge/dashboard-pages.ts";

const folder = join(import.meta.dir, "../dashboard");

/** The dashboard as browsers load it, made from its sources. */
export async function buildDashboard(): Promise<readonly DashboardFile[]> {
  const { outputs } = await Bun.build({
    entrypoints: ["main.tsx", "style/style.css", "layout-worker.ts"].map((name) => join(folder, name)),
    target: "browser",
    format: "esm",
    splitting: true,
    minify: true,
    sourcemap: "none",
    publicPath: "/dashboard/assets/",
    naming: "[name]-[hash].[ext]",
    define: { "process.env.NODE_ENV": '"production"' },
  });
  return Promise.all(
    outputs.map(async (output) => ({
      name: output.path.replace(/^.*\//, ""),
      contentType: output.type,
      bytes: new Uint8Array(await output.arrayBuffer()),
    })),
  );
}
