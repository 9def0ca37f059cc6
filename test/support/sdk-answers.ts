/** Answers of a server as its clients read them. */

export const run = {
  id: "run_1",
  status: "RUN_STATUS_PAUSED",
  pauseReason: "injection",
  parentRunId: "run_0",
};
export const entry = {
  eventId: "evt_1",
  functionId: "f",
  entityVersion: "3",
  changeType: "update",
  functionSnapshot: {
    id: "f",
    status: "FUNCTION_STATUS_ACTIVE",
    preferredMode: "EXECUTION_MODE_PUSH",
    version: 2,
  },
};
export const secret = {
  name: "TOKEN",
  revision: 2,
  created_at: "2026-01-01T00:00:00.000Z",
  updated_at: "2026-01-02T00:00:00.000Z",
};
export const secretRead = {
  name: "TOKEN",
  revision: 2,
  createdAt: secret.created_at,
  updatedAt: secret.updated_at,
};
