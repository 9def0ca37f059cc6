import { createClient, createWorker } from "../../sdk/index.ts";
import { events, orders, sales, stock } from "./model.ts";
import { placeOrder } from "./place-order.ts";

// The worker process of the shop; server and key by SVC_SERVER_URL and SVC_API_KEY.
const worker = createWorker({
  functions: [placeOrder(createClient({ events }))],
  projections: [stock, sales, orders],
  maxConcurrentJobs: 20,
});
await worker.start();
process.stdout.write("ready\n");

// The worker ends with the process that started it.
process.stdin.on("end", () => worker.stop()).resume();
await worker.closed;
process.exit(0);
