/** Emits an event, runs its function with a step, and says what came of it. */
export const program = (imported: string) => `${imported}
const client = createClient({ url: process.env.SVC_SERVER_URL, apiKey: process.env.SVC_API_KEY });
const id = "greet-" + process.argv[2];
const greet = client.createFunction({ id, event: id }, ({ event, step }) =>
  step.run("write", () => "Hello " + event.data.name));
const worker = createWorker({ client, functions: [greet] });
(async () => {
  await worker.start();
  const { runIds } = await client.emit(id, { name: "Ada" });
  const { output } = await client.waitForRun(runIds[0]);
  console.log("said " + output);
  await worker.stop();
})();
`;
