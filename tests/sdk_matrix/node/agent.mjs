// One task on both SDKs: planned by chat with a tool, which is asked over HTTP, drafted by a streamed Responses call,
// checked by a streamed Anthropic call. It knows nothing of a gateway.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const [toolsAt, mode] = process.argv.slice(2);
const one = new OpenAI();
const two = new Anthropic();

if (mode === "early") {
  const stream = await one.chat.completions.create({
    model: "m",
    stream: true,
    stream_options: { include_usage: true },
    messages: [{ role: "user", content: "hi" }],
  });
  for await (const event of stream) {
    if (event.choices[0]?.delta?.content) break;
  }
  const said = await one.chat.completions.create({ model: "m", messages: [{ role: "user", content: "again" }] });
  console.log(said.choices[0].message.content);
  process.exit(0);
}

const tools = [
  {
    type: "function",
    function: { name: "find", parameters: { type: "object", properties: { q: { type: "string" } } } },
  },
];
const messages = [{ role: "user", content: "refund my order" }];
let said = (await one.chat.completions.create({ model: "m-chat", messages, tools })).choices[0].message;
messages.push(said);
for (const call of said.tool_calls) {
  const found = await fetch(toolsAt + call.function.name, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: call.function.arguments,
  });
  messages.push({ role: "tool", tool_call_id: call.id, content: JSON.stringify((await found.json()).got) });
}
said = (await one.chat.completions.create({ model: "m-chat", messages, tools })).choices[0].message;
const draft = await one.responses.stream({ model: "m-draft", input: said.content }).finalResponse();
const checked = await two.messages
  .stream({ model: "m-check", max_tokens: 99, messages: [{ role: "user", content: draft.output_text }] })
  .finalText();
console.log(checked);
