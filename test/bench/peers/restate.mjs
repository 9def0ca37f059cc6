// A durable engine with a server of its own: each of three steps is in its journal before the next begins.
import * as restate from "@restatedev/restate-sdk";
import { callers, note, paced, tell, told } from "./load.mjs";

const { ingress, port, scenario, seconds } = JSON.parse(process.argv[2]);

const three = restate.service({
  name: "three",
  handlers: {
    run: async (ctx) => {
      const one = await ctx.run("one", () => 1);
      const two = await ctx.run("two", () => one + 1);
      return { result: await ctx.run("three", () => two + 1) };
    },
  },
});

async function ask(path) {
  const answer = await fetch(`http://127.0.0.1:${ingress}/three/run${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ customer: "c-1042", total: 42.5, note }),
  });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  await answer.arrayBuffer();
}
/** Kept, and not begun while this is measured. */
const send = () => ask("/send?delay=1h");
const run = () => ask("");

const scenarios = {
  lone: () => callers(1, seconds, send),
  callers: () => callers(64, seconds, send),
  runs: () => callers(100, seconds, run),
  async paced() {
    const timed = async () => {
      const askedAt = performance.now();
      await run();
      return performance.now() - askedAt;
    };
    await callers(20, 1, run);
    const took = await paced(20, seconds, timed);
    return { count: took.length, ...told(took) };
  },
};

if (scenario === "serve") {
  await restate.endpoint().bind(three).listen(port);
  process.stdout.write("ready\n");
} else {
  tell(await scenarios[scenario]());
  process.exit(0);
}
