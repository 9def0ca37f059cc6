/** What makes a block run that a page shows without a call. */
export interface Drive {
  /** Put in the place of what the page leaves to its reader. */
  replaces?: readonly [shown: string, real: string];
  /** Lines behind the block. */
  adds: string;
  /** All that is printed then, with single spaces. */
  prints: RegExp;
}

const run = (name: string, input: string) => `
  import { testFunction } from "svc";
  const { status, output } = await testFunction(${name}).run(${input});
  console.log(status, output);`;

/** By page, in the order of its blocks of `ts` that are no programs. */
export const drives: Readonly<Record<string, readonly Drive[]>> = {
  functions: [
    {
      adds: `globalThis.fetch = async () => new Response(); ${run("charge", '{ orderId: "o1", total: 5 }')}`,
      prints: /^completed 200$/,
    },
    { adds: run("report", ""), prints: /^completed written$/ },
  ],
  "real-time": [
    {
      adds: `
        const say = console.log;
        console.log = (topic, data) => {
          if (data.orderId !== "followed") return;
          say(topic, data.orderId);
          process.exit(0);
        };
        await client.emit("order.placed", { orderId: "followed" });
        await follow();`,
      prints: /^events:order\.placed followed$/,
    },
  ],
  outputs: [
    {
      adds: `
        import { createFunction, createWorker } from "svc";
        let isBroken = true;
        const told = createFunction({ id: "told-twice", retry: { delay: 10 } }, ({ step, run }) =>
          step.run("tell", async () => {
            await run.output("tokens").write(isBroken ? "wrong" : "right");
            if (isBroken) {
              isBroken = false;
              throw new Error("the model broke");
            }
          }),
        );
        const log = { debug() {}, info() {}, warn() {}, error() {} };
        const worker = createWorker({ client, functions: [told], handleSignals: false, log });
        await worker.start();
        let last = "";
        await follow((await client.invokeFunction(told, {})).runId, (text) => (last = text));
        console.log(last);
        await worker.drain();`,
      prints: /^right$/,
    },
  ],
  alerts: [
    {
      adds: run("onFailed", '{ runId: "run_1" }'),
      prints: /completed/,
    },
  ],
  signals: [
    {
      adds: `
        import { testFunction } from "svc";
        const test = testFunction(cart).signal("add", "shoe").signal("add", "hat", { after: "30h" });
        console.log(...((await test.run()).output as string[]));`,
      prints: /^shoe hat$/,
    },
  ],
  webhooks: [
    {
      replaces: ["whsec_…", "whsec_c2VjcmV0"],
      adds: `
        import { createHmac } from "node:crypto";
        const body = JSON.stringify({ type: "order.placed", timestamp: new Date().toISOString(), data: {} });
        const at = Math.floor(Date.now() / 1000);
        const key = Buffer.from("c2VjcmV0", "base64");
        const signature = createHmac("sha256", key).update(\`evt_1.\${at}.\${body}\`).digest("base64");
        const headers = { "webhook-id": "evt_1", "webhook-timestamp": \`\${at}\`, "webhook-signature": \`v1,\${signature}\` };
        const send = () => receive(new Request("http://receiver.test", { method: "POST", body, headers }));
        console.log((await send()).status, (await send()).status);`,
      prints: /^order\.placed 204 204$/,
    },
  ],
  traces: [
    {
      adds: `
        globalThis.fetch = async (url, { headers }) => {
          console.log(url, headers["idempotency-key"] !== undefined);
          return new Response();
        };
        ${run("charge", '{ id: "o1" }')}`,
      prints: / charge https:\/\/bank\.example\.com\/charges\/o1 true completed null$/,
    },
  ],
};
