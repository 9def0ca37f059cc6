import type { TestServer } from "../support/server.ts";
import { emit, functionWithWorker, stepOf } from "./visit.ts";

/** As long as names of functions may reasonably get, without a place where a line may break. */
export const longName = "reconcile_payments_of_all_marketplaces_with_the_ledger";

const failures = [
  {
    message: "the card was declined by the bank of the customer",
    code: "CARD_DECLINED",
    stack:
      "Error: the card was declined\n    at charge (/app/src/orders/charge.ts:41:11)\n    at async run (/app/worker.ts:9:3)",
    retryable: false,
  },
  {
    message: `connect ETIMEDOUT ${"ledger.internal.example.test:5432, ".repeat(12)}after 30000 ms`,
    code: "ETIMEDOUT",
    stack: `Error: connect ETIMEDOUT\n    at ${"deeply/nested/folder/".repeat(12)}ledger.ts:7:1`,
    retryable: true,
  },
] as const;

/** Functions and runs as an environment has them that is in use: each status, a failure of each length, long names. */
export async function furnishWork(
  server: TestServer,
): Promise<{ failed: string; running: string; long: string }> {
  const register = (id: string, more: object) =>
    server.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event: `${id}.asked` }], ...more });
  await register("send-welcome-email", {
    description: "Greets a new customer",
    triggers: [{ event: "user.created" }],
  });
  await register("nightly-report", { triggers: [{ cron: "0 3 * * *" }] });
  await register("fold-inventory", { name: "Fold the inventory" });
  await server.rpc("SvcService", "UpdateFunctionStatus", {
    id: "fold-inventory",
    status: "FUNCTION_STATUS_PAUSED",
  });
  const worker = await functionWithWorker(server, "ship-order", "order.paid", {
    ...{ description: "Books a parcel, prints its label and tells the customer", retry: { maxAttempts: 3 } },
  });
  const runs: string[] = [];
  for (let order = 1_001; order <= 1_012; order++) {
    const id = await emit(server, "order.paid", { order, customer: { name: "Zoë Ångström", city: "Łódź" } });
    const job = await worker.job();
    const booked = stepOf(job, "book-parcel", { output: { carrier: "DHL", parcel: `JD${order}` } });
    const failure = order % 3 === 0 ? failures[order % 2]! : undefined;
    const label = stepOf(
      job,
      "print-label",
      failure ? { status: "failed", error: failure } : { output: "label.pdf" },
    );
    await worker.report(job, {
      ...(failure
        ? { status: "failed", error: failure }
        : { status: "completed", output: { sent: true, order } }),
      steps: [booked, label],
    });
    if (failure) runs.push(id);
  }
  const running = await emit(server, "order.paid", { order: 1_013 });
  await worker.job();
  const longWorker = await functionWithWorker(server, longName, `${longName}.asked`);
  const long = await emit(server, `${longName}.asked`, { [longName]: longName.repeat(4) });
  const longJob = await longWorker.job();
  await longWorker.report(longJob, {
    ...{ status: "failed", error: failures[1] },
    steps: [stepOf(longJob, longName, { status: "failed", error: failures[1] })],
  });
  await emit(server, "user.created", { email: "ada@example.test" });
  return { failed: runs[0]!, running, long };
}
