package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"time"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

type timing struct {
	Bytes         int     `json:"bytes"`
	DecodeSeconds float64 `json:"decodeSeconds"`
	EncodeSeconds float64 `json:"encodeSeconds"`
}

// recode reads the extender's arguments in a file and writes them into a copy as kube-scheduler would send them. Then,
// for each line of input, it decodes that copy and encodes what it found once, and tells how long that took.
func recode(file, copied string, in io.Reader, out io.Writer) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var args extenderv1.ExtenderArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return err
	}
	body, err := json.Marshal(args)
	if err != nil {
		return err
	}
	if err := os.WriteFile(copied, body, 0o600); err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(timing{Bytes: len(body)}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		taken, err := once(body)
		if err != nil {
			return err
		}
		if err := encoder.Encode(taken); err != nil {
			return err
		}
	}
	return lines.Err()
}

func once(body []byte) (timing, error) {
	runtime.GC() // what an earlier run left behind is not this one's work
	var args extenderv1.ExtenderArgs
	begin := time.Now()
	if err := json.Unmarshal(body, &args); err != nil {
		return timing{}, err
	}
	decoded := time.Now()
	again, err := json.Marshal(args)
	if err != nil {
		return timing{}, err
	}
	end := time.Now()
	return timing{len(again), decoded.Sub(begin).Seconds(), end.Sub(decoded).Seconds()}, nil
}
