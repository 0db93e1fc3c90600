// A Tick in JavaScript: a list of words, with a tool that adds one and a query.
"use strict";
const readline = require("node:readline");

const word = { type: "string", minLength: 1, maxLength: 100 };
const catalogue = {
  protocol: 3, kind: "example.list", title: "List", description: "Keeps a list of words.",
  revision: "1", recover_with: "all", state: { series: [{ path: "/newest", newest: "last" }] },
  tools: [
    { name: "add", description: "Add a word.", mutates: true,
      input_schema: { type: "object", properties: { word }, required: ["word"],
        additionalProperties: false } },
    { name: "all", description: "All words.", mutates: false,
      input_schema: { type: "object", additionalProperties: false } },
  ],
};
const words = [];
const state = () => ({ seq: words.length, data: { count: words.length, newest: words.slice(-5) },
  at: new Date().toISOString() });
const write = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const refusal = (code, message) => ({ error: { code, message } });

function call({ tool, args, revision } = {}) {
  if (revision !== catalogue.revision) return refusal(-32004, "describe again");
  const names = args && typeof args === "object" && !Array.isArray(args) ? Object.keys(args) : null;
  if (tool === "all" && names && names.length === 0) return { result: words };
  const fits = names && names.join() === "word" && typeof args.word === "string" &&
    args.word.length >= 1 && [...args.word].length <= 100;
  if (tool !== "add" || !fits) return refusal(-32602, "no such tool, or unfit arguments");
  words.push(args.word);
  write({ method: "tick/update", params: state() });
  return { result: { count: words.length } };
}

const methods = {
  "tick/describe": () => ({ result: catalogue }),
  "tick/read": () => ({ result: state() }),
  "tick/call": call,
};

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  let request;
  try { request = JSON.parse(line); } catch { return; }
  if (!request || !Number.isSafeInteger(request.id) || request.id < 0) return;
  const method = Object.hasOwn(methods, request.method) ? methods[request.method] : null;
  write({ id: request.id, ...(method ? method(request.params) : refusal(-32601, "no such method")) });
});
