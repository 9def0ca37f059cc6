import { parseArgs } from "node:util";
import { commitsDemo } from "./commits-demo.ts";
import { shopDemo } from "./shop/demo.ts";
import { play } from "./stage.ts";

const usage = `bun run demo [--repo DIR] [--limit N] [--server-kill] [--keep]
bun run demo --shop [--orders N] [--keep]

  --repo DIR     commits of this git repository (default: svc's own)
  --limit N      at most N of the newest commits (default 400)
  --server-kill  also kill -9 the demo's server on the way, and start it again
  --shop         instead of commits, orders of a shop: streams of entities, a saga, projections and SQL
  --orders N     so many of them (default 200); worker and server are killed on the way
  --keep         leave the server running at the end

Uses the server at SVC_SERVER_URL (with SVC_API_KEY) when that is set, else starts one in a temporary folder.`;

const { values: flags } = parseArgs({
  options: {
    repo: { type: "string" },
    limit: { type: "string" },
    orders: { type: "string" },
    shop: { type: "boolean", default: false },
    keep: { type: "boolean", default: false },
    "server-kill": { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});

if (flags.help) {
  console.log(usage);
  process.exit(0);
}
const { keep } = flags;
const code = flags.shop
  ? await play({ keep, ownServer: true }, (stage) => shopDemo(stage, flags))
  : await play({ keep, ownServer: flags["server-kill"] }, (stage) => commitsDemo(stage, flags));
process.exit(code);
