/** A list of dead letters goes by their positions: without this index each page sorted all letters of the endpoint. */
export const lettersListed = {
  version: 65,
  name: "letters listed",
  compatible: true,
  statements: (): string[] => [
    `CREATE INDEX webhook_dead_letters_list ON webhook_dead_letters (environment_id, endpoint_id, position, event_id)`,
  ],
};
