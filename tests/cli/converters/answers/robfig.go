// Print the next times of expressions by robfig/cron v3, for go_cron.json.
//
// Input: a JSON list of {"expression", "zone", "after"}; with six fields the first is the second.
package main

import (
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

type row struct {
	Expression string   `json:"expression"`
	Zone       string   `json:"zone"`
	After      string   `json:"after"`
	Next       []string `json:"next"`
}

func main() {
	var rows []row
	if err := json.NewDecoder(os.Stdin).Decode(&rows); err != nil {
		panic(err)
	}
	fields := cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor
	for i := range rows {
		location, err := time.LoadLocation(rows[i].Zone)
		if err != nil {
			panic(err)
		}
		at, err := time.Parse(time.RFC3339, rows[i].After)
		if err != nil {
			panic(err)
		}
		options := fields
		if len(strings.Fields(rows[i].Expression)) == 6 {
			options |= cron.Second
		}
		schedule, err := cron.NewParser(options).Parse(rows[i].Expression)
		if err != nil {
			continue
		}
		rows[i].Next = []string{}
		at = at.In(location)
		for n := 0; n < 6; n++ {
			at = schedule.Next(at)
			if at.IsZero() {
				break
			}
			rows[i].Next = append(rows[i].Next, at.UTC().Format(time.RFC3339))
		}
	}
	json.NewEncoder(os.Stdout).Encode(rows)
}
