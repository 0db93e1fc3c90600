#!/bin/sh
# A Tick in POSIX shell: one query tool that tells how many requests there were.
# It relies on the host writing compact JSON with the members in the order that T shows.
seen=0
SCHEMA='{"type":"object","properties":{},"additionalProperties":false}'
TOOL='{"name":"requests","description":"How many requests came so far.","mutates":false,"input_schema":'$SCHEMA'}'
HEAD='"protocol":3,"kind":"example.shell","title":"Shell","description":"Counts requests."'
answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
refuse() { answer '"error":{"code":'"$1"',"message":"'"$2"'"}'; }
while IFS= read -r line; do
    case $line in '{"jsonrpc":"2.0","id":'[0-9]*) ;; *) continue ;; esac
    id=${line#*'"id":'}; id=${id%%,*}
    case $id in *[!0-9]*) continue ;; esac
    seen=$((seen + 1))
    case $line in
    *'"method":"tick/describe"'*) answer '"result":{'"$HEAD"',"revision":"1","tools":['"$TOOL"']}' ;;
    *'"method":"tick/read"'*) answer '"result":{"seq":0,"data":null}' ;;
    *'"method":"tick/call"'*)
        case $line in
        *'"revision":"1"}}') ;;
        *) refuse -32004 'describe again'; continue ;;
        esac
        case $line in
        *'"params":{"tool":"requests","args":{},'*) answer '"result":{"requests":'"$seen"'}' ;;
        *) refuse -32602 'requests takes no arguments, and there is no other tool' ;;
        esac ;;
    *) refuse -32601 'no such method' ;;
    esac
done
